"""The HTTP edge and the road of a request: admit, cache, route, generate, record.

Importing it settles, for this process, how torch's threads wait for each other (`WAITING`).
"""

import os
from collections.abc import Mapping
from types import MappingProxyType

WAITING: Mapping[str, str] = MappingProxyType({"OMP_WAIT_POLICY": "passive"})
"""Environment of a process that runs the engine; read when torch is imported, and left alone where the user set it.

By default a thread that waits for the others spins for up to 300,000 turns, some 16 ms. Where the HTTP loop or another
process has one of the cores, the threads of an operator share the other and each spins through its time slice while the
one it waits for is not running.
"""

for _name, _value in WAITING.items():
    os.environ.setdefault(_name, _value)
