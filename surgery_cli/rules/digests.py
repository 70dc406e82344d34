"""The values that a manifest has digests of, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from surgery_cli.draft.check import Judged
from surgery_cli.draft.leaf_digest import Manifest, sha256_of_blocks, sha256_of_text, sort_of
from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.draft.seen import BlockDigests, Seen
from surgery_cli.optimizer.follow.states import States
from surgery_cli.rules.contract import Named, Rule
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec, other_containers

_SHOWN: Final = len("sha256:") + 12


class DigestsOf(Rule, frozen=True):
    """Each leaf has the digest that a manifest has of it, and neither side lacks one."""

    digests_of: Annotated[
        str,
        Meta(
            description="A manifest that has the digests of these leaves: what `seal --to` or `inspect --digests"
            " --json` wrote, or a `surgery.json`."
        ),
    ]

    sees: ClassVar[type[Seen]] = BlockDigests
    judges_empty: ClassVar[bool] = True
    path_fields: ClassVar[tuple[str, ...]] = ("digests_of",)

    @property
    def text(self) -> str:
        return f"digests of {self.digests_of}"

    @property
    def may_name_nothing(self) -> bool:
        return True  # what the manifest has of it is missing then

    def held_against(self, draft: Draft, scene: States) -> TreeSpec:
        return scene.manifest(self.digests_of).tree

    def breach_of_selection(self, named: Named) -> str:
        self._manifest(named)  # that it cannot be read is said once, and not of every leaf
        return ""

    def absent(self, named: Named) -> Iterator[tuple[LeafPath, str]]:
        manifest = self._manifest(named)
        there = {path.spelling for path in named.draft.leaves}
        missing = {p: spec for p, spec in manifest.tree.items() if p.spelling not in there}
        for path in named.selected_in(type(manifest.tree)(missing), is_typed=manifest.is_typed):
            yield path, "it is missing, and the manifest has its digest"
        yield from _other_containers(named, manifest)

    def breach(self, path: LeafPath, output: Output, named: Named) -> str:
        return self._difference(path, output.spec, named)

    def is_told(self, path: LeafPath, output: Output, named: Named) -> bool:
        return output.spec.kind is LeafKind.EMPTY

    def of_leaf(self, path: LeafPath, named: Named) -> Rule:
        known = self._manifest(named).leaves[path.spelling]
        return _DigestOf(digests_of=self.digests_of, digest=known.digest, blocks=known.grid)

    def _difference(self, path: LeafPath, spec: LeafSpec, named: Named) -> str:
        """How a leaf differs from what the manifest says beside its digest, or from the digest of what is empty."""
        known = self._manifest(named).leaves.get(path.spelling)
        if known is None:
            return f"it is {spec.type_text}, and the manifest has no digest of it"
        sort = sort_of(spec.kind, spec.type_text)
        if known.sort and known.sort != sort:
            return f"it is {sort}, in the manifest {known.sort}"
        if spec.kind is LeafKind.EMPTY and sha256_of_text(spec.empty) != known.digest:
            return f"it is {spec.type_text}, in the manifest something else"
        if spec.has_array and known.grid and len(known.grid) != len(spec.shape):
            return f"it is {spec.type_text}, in the manifest an array of other axes"
        return ""

    def _manifest(self, named: Named) -> Manifest:
        return named.scene.manifest(self.digests_of)


def _other_containers(named: Named, manifest: Manifest) -> Iterator[tuple[LeafPath, str]]:
    """Nodes above the same leaves that are another container, into which a restore of the other side's tree fails."""
    if manifest.containers is not None:
        known = [path for path in named.leaves if path.spelling in manifest.leaves]
        for node, here, there in other_containers(known, manifest.containers):
            yield node, f"it is a {here}, in the manifest a {there}"


class _DigestOf(DigestsOf, frozen=True):
    """The rule as it is meant of one leaf; ``blocks`` is the grid on record, empty for the leaf's own."""

    digest: str
    blocks: tuple[int, ...] = ()

    @property
    def grid(self) -> tuple[int, ...] | None:
        return self.blocks

    def judge(self, seen: BlockDigests, spec: LeafSpec) -> Judged:
        found = seen.text or sha256_of_blocks(spec.dtype, spec.shape, seen.grid, seen.in_c_order())
        if found == self.digest:
            return Judged(True, "its digest is that of the manifest")
        here, there = (f"`{digest[:_SHOWN]}…`" for digest in (found, self.digest))
        return Judged(False, f"its digest is {here}, in the manifest {there}")
