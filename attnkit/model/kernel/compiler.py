"""Decorators of compiled functions: `entry` for those that Python calls, `inner` for the others.

numba optimises a function together with everything that it calls and translates all of it into
machine code, and repeats this for each caller. Inner functions are left in LLVM's language instead:
their machine code is made once, as a part of the entry functions.
"""

from __future__ import annotations

from typing import Any

from numba import njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering

OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"contract"},
    "no_cfunc_wrapper": True,
}
"""Compiler options of every function of the kernel. A product and a sum may be rounded together,
but nothing is reordered: bits depend on the vector length only, and NaN and infinity are kept."""


class _InnerLibrary(JITCodeLibrary):
    """Code of an inner function, which is neither optimised nor translated by itself."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _InnerLowering(NativeLowering):
    """Last pass of an inner function, which writes its code in LLVM's language."""

    _name = "inner_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower one inner function to LLVM's language."""
        name, codegen = state.func_id.func_qualname, state.targetctx.codegen()
        state.library = _InnerLibrary(codegen, name)  # type: ignore[no-untyped-call]
        state.flags.no_compile = True
        super().run_pass(state)  # type: ignore[no-untyped-call]
        lowered = state["cr"]
        # numba needs a builtin function here; if it is called, this one raises a KeyError
        function = f"{{{name} can be called by compiled functions only}}".format
        state.targetctx.insert_user_function(function, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=function)
        return True


class _InnerCompiler(CompilerBase):
    """Compiler of inner functions: numba's own with another last pass."""

    def define_pipelines(self) -> list[PassManager]:
        """Return numba's passes with another last one."""
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        for index, (kind, name) in enumerate(manager.passes):
            if kind is NativeLowering:
                manager.passes[index] = _InnerLowering, name
        manager._finalized = False
        manager.finalize()
        return [manager]


entry = njit(cache=True, **OPTIONS)
"""Decorator of a function that Python calls; its machine code is kept in the cache folder."""

inner = njit(pipeline_class=_InnerCompiler, **OPTIONS | {"no_cpython_wrapper": True})
"""Decorator of a function that only compiled functions call."""
