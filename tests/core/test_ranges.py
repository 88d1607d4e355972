from __future__ import annotations

import numpy as np
import pytest

from sb3_budget.core.ranges import require_share


def test_a_share_lies_between_0_and_1():
    for share in (0, 0.5, 1.0):
        require_share("share", share)
    for other in (-1e-9, 1.5, np.nan):
        with pytest.raises(ValueError, match=r"share=.* must lie in \[0, 1\]"):
            require_share("share", other)
