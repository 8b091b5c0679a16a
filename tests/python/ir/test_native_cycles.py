"""The cost that the C++ of a kernel states."""

import pytest

from pto_wsp import Constexpr, In, Out, Scalar, Tensor, Tile, f32, i64, kernel
from pto_wsp.device.kernel_cost import kernel_cost
from pto_wsp.device.kernel_facts import scalars_that_matter
from pto_wsp.device.reader import get_device
from pto_wsp.errors import BadKernelOption, NoCost
from pto_wsp.ir.native_cycles import native_cycles
from pto_wsp.lang.kernel.kernel import Kernel

DEVICE = get_device("ascend_910b")


def native(source: str) -> Kernel:
    @kernel(cpp_src=source)
    def copy(x: In[Tensor[f32, 4, 8, 16]], y: Out[Tile[8, 16, f32]], n: Scalar[i64], other: Scalar[i64]): ...

    return copy


def cycles(source: str, n: int = 7) -> float:
    function = native(source).specialise({}, {})
    return kernel_cost(function, DEVICE, [(4, 8, 16), (3, 5)], [n, 0]).cycles


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        ("300", 300),
        ("300 + 20 * y.rows()", 360),
        ("x.size(0) * x.size(2) + y.cols() + x.rows()", 73),
        ("n / 2", 3),
        ("(n - 20) / 2 + 6", 0),  # C++ divides toward zero
        ("n / 2.0", 3.5),
        ("n % 4", 3),
        ("std::max(n, y.cols()) - min(2, 1)", 6),
        ("-(-n)", 7),
    ],
)
def test_the_expression_is_that_of_c_plus_plus(cost: str, expected: float) -> None:
    assert cycles(f"y(0, 0) = 1;\nPTO_CYCLES({cost});") == expected


def test_comments_texts_and_definitions_state_no_cost() -> None:
    source = (
        '// PTO_CYCLES(1)\n/* PTO_CYCLES(2) */ const char* a = "PTO_CYCLES(3)";\n#define M PTO_CYCLES(4)\n'
    )
    assert native_cycles(native(source).specialise({}, {})) is None
    assert cycles(source + "PTO_CYCLES(5);") == 5


def test_a_kernel_in_cpp_without_a_cost_says_how_to_state_one() -> None:
    with pytest.raises(NoCost, match="PTO_CYCLES"):
        cycles("y(0, 0) = 1;")


def test_only_scalars_of_the_expression_matter() -> None:
    assert scalars_that_matter(native("PTO_CYCLES(n * 2);").specialise({}, {})) == (True, False)


def test_constants_of_the_kernel_are_numbers() -> None:
    @kernel(cpp_src="PTO_CYCLES(10 * factor);")
    def scaled(y: Out[Tile[8, 16, f32]], factor: Constexpr[int]): ...

    function = scaled.specialise({}, {"factor": 3})
    assert kernel_cost(function, DEVICE, [(8, 16)], []).cycles == 30


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("PTO_CYCLES(z.rows());", "z.rows()"),
        ("PTO_CYCLES(x.cells());", "x.cells()"),
        ("PTO_CYCLES(y.size(2));", "y.size(2)"),
        ("PTO_CYCLES(unknown);", "unknown"),
        ("PTO_CYCLES(n ? 1 : 2);", "n ? 1 : 2"),
        ("PTO_CYCLES(n ** 2);", "n ** 2"),
        ("PTO_CYCLES(true);", "true"),
        ("PTO_CYCLES();", ""),
        ("PTO_CYCLES(1);\nPTO_CYCLES(2);", "another one"),
        ("PTO_CYCLES(1); PTO_CYCLES(2);", "another one"),
    ],
)
def test_what_is_not_a_cost_is_an_error_at_its_line(source: str, found: str) -> None:
    with pytest.raises(BadKernelOption) as caught:
        native(f"y(0, 0) = 1;\n{source}")
    assert found in str(caught.value)


@pytest.mark.parametrize(("cost", "reason"), [("n - 10", "is -3"), ("1 / (n - 7)", "divides by zero")])
def test_a_value_that_is_no_time_is_an_error(cost: str, reason: str) -> None:
    with pytest.raises(NoCost, match=reason):
        cycles(f"PTO_CYCLES({cost});")
