"""Translation of `.pyx` to C in which every `.pxd` is read once, and only what a module calls is written.

The Cython compiler reads the declarations that a module reaches again for each module, and writes all their inline functions into its C,
of which nine in ten are not called there. A Translator reads all declarations; each module is translated in a process
that is forked from this state, without the functions that it does not call. This takes half of the compiler's time.

It reaches into the compiler, of which no release promises the inside: who uses it translates as usual where it fails.

`python setup/translation.py FILE...` translates files and prints what the compiler says, for .ci/checks.
"""

from __future__ import annotations

import copy
import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from Cython.Compiler import Code, Errors, Options, Pipeline
from Cython.Compiler.Main import CompilationOptions, Context, compile_single
from Cython.Compiler.ModuleNode import ModuleNode
from Cython.Compiler.Nodes import Node
from Cython.Compiler.Symtab import ModuleScope
from Cython.Compiler.Visitor import TreeVisitor, VisitorTransform


class Translator:
    """Translates modules whose names and declarations are below the working folder. Linux only, for fork()."""

    def __init__(self, directives: dict[str, Any], declarations: Iterable[Path]) -> None:
        """declarations: the `.pxd` files that modules may reach. Raises whatever the compiler raises for one of them."""
        self.directives = directives
        Code.IncludeCode.dict_update = copy_include
        Pipeline.inject_pxd_code_stage_factory = merge_declarations
        self.context = Context.from_options(self.options())
        Errors.init_thread()
        Errors.reset()
        Errors.open_listing_file(None)  # errors of declarations are printed
        for path in declarations:
            self.context.find_module(name_of(path))

    def options(self, target: str | None = None) -> CompilationOptions:
        directives = dict(self.directives)
        options = CompilationOptions(
            Options.default_options, include_path=["."], compiler_directives=directives, output_file=target
        )
        options.configure_language_defaults("pyx")
        return options

    def translate(self, source: str) -> str | None:
        """Write the C file of a `.pyx` beside it; returns its name, or None when that failed, which is printed."""
        target = str(Path(source).with_suffix(".c"))
        child = os.fork()
        if child == 0:
            failed = True
            try:
                self.context.options = self.options(target)
                result = compile_single(source, self.context.options, name_of(Path(source)), context=self.context)
                failed = result.num_errors > 0
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(failed)
        return None if os.waitpid(child, 0)[1] else target


def name_of(path: Path) -> str:
    return ".".join(path.with_suffix("").parts)


def copy_include(include: Any, into: dict[Any, Any], key: Any) -> None:
    """Add an `extern` block to those of a scope, which otherwise changes that of the scope that it comes from."""
    pieces = dict(include.pieces)
    if key in into:
        into[key].location = min(include.location, into[key].location)
        into[key].pieces.update(pieces)
    else:
        into[key] = copy.copy(include)
        into[key].pieces = pieces


def merge_declarations(context: Context) -> Callable[[ModuleNode], ModuleNode]:
    """The step of the compiler that merges the inline functions of declarations into a module: those that it calls."""

    def merge(module: ModuleNode) -> ModuleNode:
        reached = scopes_from(module.scope)
        pairs = [pair for pair in context.pxds.values() if pair[1] in reached]
        functions: dict[Any, list[Node]] = {}
        for tree, scope in pairs:
            if scope is not module.scope:
                InlineFunctions(functions).visit(tree)
        kept: set[Node] = set()
        trees = [module.body, *(tree for tree, scope in pairs if scope is module.scope)]
        while trees:
            for name in names_in(trees.pop()):
                called = functions.pop(name, ())
                kept.update(called)
                trees.extend(called)
        unused = Unused(kept)
        for tree, scope in pairs:
            module.merge_in(tree if scope is module.scope else unused(tree), scope, stage="pxd")
        return module

    return merge


def scopes_from(scope: ModuleScope) -> set[ModuleScope]:
    """The scopes of a module and of all declarations that it reaches."""
    todo, reached = [scope], set()
    while todo:
        scope = todo.pop()
        if scope not in reached:
            reached.add(scope)
            todo.extend(scope.cimported_modules)
    return reached


def names_in(tree: Node) -> set[str]:
    """The names of all that a tree may call. Of methods the compiler keeps an attribute, of functions an entry."""
    names = set()
    todo = [tree]
    while todo:
        if (node := todo.pop()) is None:
            continue
        if (entry := getattr(node, "entry", None)) is not None:
            names.add(entry.name)
        if attribute := getattr(node, "attribute", None):
            names.add(attribute)
        for child in map(node.__getattribute__, node.child_attrs or ()):
            todo.extend(child if isinstance(child, list) else [child])
    return names


class InlineFunctions(TreeVisitor):
    """Collects the functions in a tree of declarations, by name."""

    def __init__(self, found: dict[str, list[Node]]) -> None:
        super().__init__()
        self.found = found

    def visit_Node(self, node: Node) -> None:
        self.visitchildren(node)

    def visit_CFuncDefNode(self, node: Node) -> None:
        self.found.setdefault(node.entry.name, []).append(node)


class Unused(VisitorTransform):
    """Removes all functions from a tree of declarations but those that are kept."""

    def __init__(self, kept: set[Node]) -> None:
        super().__init__()
        self.kept = kept

    def visit_Node(self, node: Node) -> Node:
        self.visitchildren(node)
        return node

    def visit_CFuncDefNode(self, node: Node) -> Node | None:
        return node if node in self.kept else None


if __name__ == "__main__":
    gc.disable()
    translator = Translator({}, sorted(Path().glob("streamd/**/*.pxd")))
    translated = [translator.translate(source) for source in sys.argv[1:]]
    sys.exit(not all(translated))
