"""Numbers in records: no larger than that sums, squares and ratios of them are numbers, too."""

from typing import Annotated

import msgspec

MOST = 1e15

Count = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
Counter = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
"""What a drive or a server counted, the difference of two readings."""
Rate = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Figure = Annotated[float, msgspec.Meta(ge=-MOST, le=MOST)]
