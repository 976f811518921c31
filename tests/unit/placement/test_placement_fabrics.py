"""The fabrics and programs that the placement tests share are sound."""

from __future__ import annotations

from tests.factories.placement_fabrics import fabric_of, regular, stencil


def test_fabrics_are_sound() -> None:
    regular(4, 3, 2).check()
    fabric_of([(0, 1), (1, 0), (1,)], [0, 0]).check()


def test_stencil_has_the_right_number_of_messages() -> None:
    assert len(stencil((4, 3)).kind) == 2 * (3 * 3 + 4 * 2)
    assert len(stencil((4, 3), periodic=True).kind) == 4 * 12
