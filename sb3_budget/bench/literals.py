"""Python literals with a few callables in them, as hyperparameter files write them, read without ``eval``."""

import ast
from collections.abc import Mapping
from typing import Any


def literal(text: str, names: Mapping[str, Any]) -> Any:
    """
    Value of an expression made of literals, calls of given names and their attributes:
    ``dict(net_arch=[64, 64], activation_fn=nn.ReLU)``, ``QuantileGate(0.4)``.

    :param text: the expression
    :param names: what the names in it stand for
    :return: its value
    """
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, names)
    except (SyntaxError, ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"cannot read {text!r}: {error} (literals and the names {', '.join(sorted(names))} only)") from error


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_value(key, names): _value(value, names) for key, value in zip(keys, values, strict=True) if key}
        case ast.List(elts=elements):
            return [_value(element, names) for element in elements]
        case ast.Tuple(elts=elements):
            return tuple(_value(element, names) for element in elements)
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in names and not attribute.startswith("_"):
            return getattr(names[name], attribute)
        case ast.Call(func=function, args=arguments, keywords=keywords) if all(keyword.arg for keyword in keywords):
            called = _value(function, names)
            return called(
                *(_value(argument, names) for argument in arguments),
                **{str(keyword.arg): _value(keyword.value, names) for keyword in keywords},
            )
    return ast.literal_eval(node)
