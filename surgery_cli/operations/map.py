"""Let a function of the user's make the new values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

from surgery_cli.draft.arrangement import reshaped
from surgery_cli.draft.effect import Effect, Keeps, Shifts, Takes
from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernel import Kernel, Kit, Piece, Place, Window
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.user_function import UserFunction
from surgery_cli.errors import PlanError, Problem, SurgeryError, ValueRefusal, raise_all
from surgery_cli.operations.base import LeafOperation, Scene
from surgery_cli.operations.cast import STORABLE
from surgery_cli.optimizer.follow.untold_trees import named_untold
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.notes import Remark
from surgery_cli.words.pages import DocsPage

_EFFECTS: Final[Mapping[str, Effect]] = {"shifts": Shifts(), "keeps": Keeps(), "takes": Takes()}
_SPEC: Final = re.compile(r"(\w+)\[((?:\d+(?:,\d+)*)?)\]")


class Map(LeafOperation, tag="map", kw_only=True, frozen=True):
    """Call a function of a Python file once for each leaf, and take the array that it returns.

    It is given the whole leaf as a NumPy array, which it must not change, in the leaf's own dtype (bfloat16 and its
    like are those of ml_dtypes), and the leaf's path as text; it returns an array of the same shape and dtype, or of
    those that `spec` says. It runs as if from its own folder, one leaf after the other, beside nothing else. The
    SHA-256 of the file is a part of the draft's digest and stands in the record of the result; modules that the file
    imports are not looked at. Memory holds a whole leaf. It must return the same for the same array and path:
    whatever reads the leaf may call it again, be it a later edit (`copy`, `split`, `normalize`, `prune`, `resize`), an
    `assert`, a rule of `check:` or another process. A function that then gives something else (a draw without a seed, a
    counter) is refused; `np.random.default_rng([7, *path.encode()])` draws the same for the same path.
    """

    with_: Annotated[
        str,
        Meta(
            examples=["edit.py:halve"],
            description="The function, `FILE.py:FUNCTION`, called as `FUNCTION(array, path)`; arguments that follow"
            " these may be given: `edit.py:scaled(by=0.5)`.",
        ),
    ] = msgspec.field(name="with")
    spec: Annotated[
        str,
        Meta(
            examples=["float32[64,10]"],
            description="What it returns, where that is another dtype or shape than the leaf's: `float32[64,10]`.",
        ),
    ] = ""
    effect_: Annotated[
        Literal["shifts", "keeps", "takes"],
        Meta(
            description="What it does to a leaf, by which the optimizer's slots follow: `shifts`, they stay, and copies"
            " of the params get the same call; `keeps`, values are what they were but for rounding; `takes`, they do"
            " not depend on what they were, as those of a donor."
        ),
    ] = msgspec.field(name="effect", default="shifts")
    sha256: Annotated[
        str, Meta(description="The SHA-256 that the file must have, `sha256:…`; any if left out.")
    ] = ""

    example: ClassVar[str] = (
        "- op: map\n  at: params/Dense_0/kernel\n  with: edits/halve.py:halve\n"
    )
    path_fields: ClassVar[tuple[str, ...]] = ("with",)
    local_fields = path_fields
    if_torn: ClassVar[str] = worded(
        "`delete` the optimizer state in the same plan, and let the script begin with a fresh one; or say {twins:"
        " named}"
    )

    @property
    def effect(self) -> Effect:
        return _EFFECTS[self.effect_]

    def check_values(self) -> None:
        super().check_values()
        if self.spec:
            self._returned()

    def output(self, spec: LeafSpec) -> LeafSpec:
        super().output(spec)
        if not self.spec:
            return spec
        dtype, shape = self._returned()
        if spec.kind is LeafKind.SCALAR and (dtype, shape) != (spec.dtype, spec.shape):
            raise PlanError(
                f"{spec.type_text} does not become {self.spec}",
                why="a Python number has neither another dtype nor a shape",
                fix=worded("leave it out with {except}"),
                field="spec",
            )
        new = spec if shape == spec.shape else reshaped(spec, shape)
        return msgspec.structs.replace(new, dtype=dtype, stored_bytes=None)

    def maker(
        self, named: Selection, draft: Draft, scene: Scene
    ) -> Callable[[LeafPath, Recipe], Recipe]:
        if self.effect_ == "takes" and self.twins == "carried":  # from no tree that is like its own
            raise_all(named_untold(named, draft))
        function = scene.function(self.with_)
        if self.sha256 and function.sha256 != self.sha256:
            raise PlanError(
                f"'{function.text}' is not the function that the plan means",
                why=f"its file has {function.sha256}",
                fix=worded("take the file as it was, or leave out {sha256: {}}", self.sha256),
                field="sha256",
            )

        def called(path: LeafPath, recipe: Recipe) -> Recipe:
            new = self.output(recipe.spec)
            is_same = new.shape == recipe.spec.shape
            return Made((Called if is_same else CalledAnew)(function), (recipe,), new, path)

        return called

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        after = super().rewrite(draft, scene)
        functions = {
            recipe.kernel.function
            for path, output in after.leaves.items()
            if output is not draft.leaves.get(path)
            and isinstance(recipe := output.recipe, Made)
            and isinstance(recipe.kernel, Called)
        }
        said = [
            Remark(DocsPage.MAP, f"'{function.text}' is run: {function.sha256}")
            for function in functions
        ]
        return after.noting(*said)

    def _returned(self) -> tuple[str, tuple[int, ...]]:
        """The dtype and the shape that ``spec`` says."""
        found = _SPEC.fullmatch(self.spec.replace(" ", ""))
        if found is None or found[1] not in STORABLE:
            raise PlanError(
                worded("{spec: {}} is no dtype with a shape", self.spec),
                why=f"no leaf is stored as '{found[1]}'" if found else "",
                fix=worded(
                    "write {spec: float32[64,10]}, say, or {spec: float32[]} for one number"
                ),
                field="spec",
            )
        return found[1], tuple(int(size) for size in found[2].split(",") if size)


class Called(Kernel, frozen=True, tag="called"):
    """What a function of the user's makes of a whole leaf."""

    function: UserFunction

    @property
    def is_whole(self) -> bool:
        return True

    @property
    def is_repeatable(self) -> bool:
        return False

    @property
    def author(self) -> str:
        return f"'{self.function.text}'"

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        yield Piece(0, tuple(slice(0, n) for n in inputs[0].shape), out)

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        given = kit.fetch(blocks[0]).view()
        given.flags.writeable = False
        called = f"'{self.function.text}' on '{at.path}'"
        try:
            returned = self.function(given, at.path.text)
        except SurgeryError as error:
            raise SurgeryError.of(
                _of_leaf(problem, called, at) for problem in error.problems
            ) from error
        wanted = at.output.type_text if at.output.kind is not LeafKind.SCALAR else at.output.dtype
        if not hasattr(returned, "dtype") or not hasattr(returned, "shape"):
            raise ValueRefusal(
                f"{called} returns {type(returned).__name__!r}, and no array",
                fix=f"return a NumPy array: {wanted}",
                path=str(at.path),
            )
        if hasattr(returned, "filled"):  # what is masked has values, which NumPy then takes
            raise ValueRefusal(
                f"{called} returns an array of which parts are masked",
                why="a leaf has a value in every place",
                fix="return `new.filled(0)`, with the number that is meant there",
                path=str(at.path),
            )
        new = kit.fetch(returned)
        if (new.dtype.name, new.shape) != (at.output.dtype, at.output.shape):
            sizes = ",".join(map(str, new.shape))
            raise ValueRefusal(
                f"{called} returns {new.dtype.name}[{sizes}], and not {wanted}",
                why="the new leaf is like the old one, unless the edit says otherwise",
                fix=worded(
                    "return `new.astype(array.dtype)` where the dtype alone differs, or say {spec: {}[{}]}",
                    new.dtype.name,
                    sizes,
                ),
                path=str(at.path),
            )
        # its own memory: the function may fill that of the returned array anew for the next leaf
        own = new.astype(new.dtype.newbyteorder("="), order="C")
        self.function.hold(at.path.text, given, own)
        return own


class CalledAnew(Called, frozen=True, tag="called_anew"):
    """What it makes in another shape: nothing stands where it stood."""

    keeps_places: ClassVar[bool] = False


def _of_leaf(problem: Problem, called: str, at: Place) -> Problem:
    """A failure of the user's function, with the leaf on which it was called."""
    is_changed = "read-only" in problem.why
    return msgspec.structs.replace(
        problem,
        what=f"{called} changes the array that it is given" if is_changed else f"{called} failed",
        fix="return a new array: `array = array.copy()` first" if is_changed else problem.fix,
        path=str(at.path),
    )
