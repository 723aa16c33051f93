"""`python -m raytenant_runner`: see the package's docstring.

`python -m` puts the current directory on `sys.path`, Ray puts the job's working directory there, both
before the standard library, so a job's own `json.py` would be imported by the runner. Hence the order
below. Not covered are the few modules that Python itself loads before this line (`types`, `functools`,
`contextlib`, ... depending on its version): a job that shadows those breaks any Python in its directory.
"""

from __future__ import annotations

import os
import sys

# `os` was loaded when Python started, so this is the true place. The job's environment stays as it is.
_STANDARD_LIBRARY = os.path.dirname(os.__file__)
sys.path[:0] = [_STANDARD_LIBRARY, os.path.join(_STANDARD_LIBRARY, "lib-dynload")]

from .main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
