"""The compiled part, which pyproject.toml cannot describe; all else is there.

One extension, `asyncbroker.protocol._records`, in C and without libraries. It is optional: where
there is no compiler the install succeeds without it, and Python does its work. From Python 3.11 on
it uses the stable ABI, of which buffers are no part before: one wheel serves all later versions.
"""

import sys
import sysconfig

from setuptools import Extension, setup

has_stable_abi = sys.version_info >= (3, 11) and not sysconfig.get_config_var("Py_GIL_DISABLED")

setup(
    ext_modules=[
        Extension(
            "asyncbroker.protocol._records",
            ["protocol/_records.c"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if has_stable_abi else [],
            extra_compile_args=[] if sys.platform == "win32" else ["-O3"],
            py_limited_api=has_stable_abi,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if has_stable_abi else {},
)
