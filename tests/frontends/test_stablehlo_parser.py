"""Reading StableHLO's text: both forms give one tree, and what is wrong is said with its place."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.errors import ParseError
from tilewright.frontends.stablehlo import parse_module, parse_modules
from tilewright.frontends.stablehlo.attributes import Convolved, Record, Symbol, Word
from tilewright.frontends.stablehlo.elements import Elements
from tilewright.frontends.stablehlo.syntax import Operation, Region
from tilewright.frontends.stablehlo.types import Complex, Float, Integer, Quantized, Tensor

F32 = Float("f32")


def body(text: str) -> tuple[Operation, ...]:
    return parse_module(text).functions["main"].body.operations


def function(operations: str, takes: str = "", gives: str = "", returned: str = "") -> str:
    arrow = f" -> ({gives})" if gives else ""
    back = f"return {returned} : {gives}" if returned else "return"
    return f"func.func @main({takes}){arrow} {{\n{operations}\n{back}\n}}\n"


def plain(value: object) -> object:
    """An attribute without what differs between the forms: empty fields, lists or tuples."""
    if isinstance(value, Elements):
        return str(value.type), value.value.tolist()
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, Record):
        return value.name, {k: plain(v) for k, v in value.fields.items() if plain(v) != []}
    return value


def tree(region: Region) -> list[object]:
    return [
        (
            operation.name,
            [v.type for v in operation.operands],
            [v.type for v in operation.results],
            {key: plain(value) for key, value in operation.attributes.items()},
            [([a.type for a in r.arguments], tree(r)) for r in operation.regions],
        )
        for operation in region.operations
    ]


# The same operations in the pretty form and in the generic one.
FORMS = {
    "add": (
        "%0 = stablehlo.add %a, %a : tensor<4x3xf32>",
        '%0 = "stablehlo.add"(%a, %a) : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>',
    ),
    "compare": (
        "%0 = stablehlo.compare  LT, %a, %a,  FLOAT : (tensor<4x3xf32>, tensor<4x3xf32>)"
        " -> tensor<4x3xi1>",
        '%0 = "stablehlo.compare"(%a, %a) <{comparison_direction = '
        "#stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type FLOAT>}>"
        " : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x3xi1>",
    ),
    "constant": (
        "%0 = stablehlo.constant dense<[1, -2]> : tensor<2xi32>",
        '%0 = "stablehlo.constant"() <{value = dense<[1, -2]> : tensor<2xi32>}>'
        " : () -> tensor<2xi32>",
    ),
    "transpose": (
        "%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x3xf32>) -> tensor<3x4xf32>",
        '%0 = "stablehlo.transpose"(%a) <{permutation = array<i64: 1, 0>}>'
        " : (tensor<4x3xf32>) -> tensor<3x4xf32>",
    ),
    "slice": (
        "%0 = stablehlo.slice %a [0:4:2, 1:3] : (tensor<4x3xf32>) -> tensor<2x2xf32>",
        '%0 = "stablehlo.slice"(%a) {start_indices = array<i64: 0, 1>, '
        "limit_indices = array<i64: 4, 3>, strides = array<i64: 2, 1>}"
        " : (tensor<4x3xf32>) -> tensor<2x2xf32>",
    ),
    "dot_general": (
        "%0 = stablehlo.dot_general %a, %a, contracting_dims = [0] x [0], "
        "precision = [DEFAULT, HIGHEST] : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<3x3xf32>",
        '%0 = "stablehlo.dot_general"(%a, %a) <{dot_dimension_numbers = #stablehlo.dot<'
        "lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>, precision_config = "
        "[#stablehlo<precision DEFAULT>, #stablehlo<precision HIGHEST>]}>"
        " : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<3x3xf32>",
    ),
    "reduce": (
        "%0 = stablehlo.reduce(%a init: %s) applies stablehlo.add across dimensions = [1]"
        " : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>",
        '%0 = "stablehlo.reduce"(%a, %s) <{dimensions = array<i64: 1>}> ({\n'
        "^bb0(%x: tensor<f32>, %y: tensor<f32>):\n  %z = stablehlo.add %x, %y : tensor<f32>\n"
        "  stablehlo.return %z : tensor<f32>\n}) : (tensor<4x3xf32>, tensor<f32>)"
        " -> tensor<4xf32>",
    ),
    "reducer": (
        "%0:2 = stablehlo.reduce(%a init: %s), (%a init: %s) across dimensions = [0]"
        " : (tensor<4x3xf32>, tensor<4x3xf32>, tensor<f32>, tensor<f32>)"
        " -> (tensor<3xf32>, tensor<3xf32>)\n"
        " reducer(%x: tensor<f32>, %z: tensor<f32>) (%y: tensor<f32>, %w: tensor<f32>) {\n"
        "  stablehlo.return %x, %w : tensor<f32>, tensor<f32>\n}",
        '%0:2 = "stablehlo.reduce"(%a, %a, %s, %s) <{dimensions = array<i64: 0>}> ({\n'
        "^bb0(%x: tensor<f32>, %y: tensor<f32>, %z: tensor<f32>, %w: tensor<f32>):\n"
        '  "stablehlo.return"(%x, %w) : (tensor<f32>, tensor<f32>) -> ()\n})'
        " : (tensor<4x3xf32>, tensor<4x3xf32>, tensor<f32>, tensor<f32>)"
        " -> (tensor<3xf32>, tensor<3xf32>)",
    ),
    "while": (
        "%0:2 = stablehlo.while(%i = %s, %j = %s) : tensor<f32>, tensor<f32>\n cond {\n"
        "  %c = stablehlo.is_finite %i : (tensor<f32>) -> tensor<i1>\n"
        "  stablehlo.return %c : tensor<i1>\n } do {\n"
        "  stablehlo.return %j, %i : tensor<f32>, tensor<f32>\n }",
        '%0:2 = "stablehlo.while"(%s, %s) ({\n^bb0(%i: tensor<f32>, %j: tensor<f32>):\n'
        '  %c = "stablehlo.is_finite"(%i) : (tensor<f32>) -> tensor<i1>\n'
        '  "stablehlo.return"(%c) : (tensor<i1>) -> ()\n}, {\n'
        "^bb0(%i: tensor<f32>, %j: tensor<f32>):\n"
        '  "stablehlo.return"(%j, %i) : (tensor<f32>, tensor<f32>) -> ()\n})'
        " : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)",
    ),
    "convolution": (
        "%0 = stablehlo.convolution(%b, %b) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], "
        "window = {stride = [2], pad = [[1, 1]], rhs_dilate = [1]} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
        " : (tensor<2x2x2xf32>, tensor<2x2x2xf32>) -> tensor<2x2x2xf32>",
        '%0 = "stablehlo.convolution"(%b, %b) <{dimension_numbers = '
        "#stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, window_strides = array<i64: 2>, "
        "padding = [[1, 1]], rhs_dilation = array<i64: 1>, batch_group_count = 1 : i64, "
        "feature_group_count = 1 : i64}>"
        " : (tensor<2x2x2xf32>, tensor<2x2x2xf32>) -> tensor<2x2x2xf32>",
    ),
    "reduce_precision": (
        "%0 = stablehlo.reduce_precision %a, format = e5m10 : tensor<4x3xf32>",
        '%0 = "stablehlo.reduce_precision"(%a) <{exponent_bits = 5 : i32, '
        "mantissa_bits = 10 : i32}> : (tensor<4x3xf32>) -> tensor<4x3xf32>",
    ),
    "custom_call": (
        'stablehlo.custom_call @"a b"(%a) {has_side_effect = true} : (tensor<4x3xf32>) -> ()',
        '"stablehlo.custom_call"(%a) <{call_target_name = "a b", has_side_effect = true}>'
        " : (tensor<4x3xf32>) -> ()",
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_both_forms_give_one_tree(name: str) -> None:
    takes = "%a: tensor<4x3xf32>, %b: tensor<2x2x2xf32>, %s: tensor<f32>"
    pretty, generic = (
        parse_module(function(form, takes)).functions["main"].body for form in FORMS[name]
    )
    assert tree(pretty) == tree(generic)


def test_modules_and_functions() -> None:
    text = """
#loc = loc(unknown)
module @m attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<2xf32> {jax.arg_info = "x"} loc("x")) -> (tensor<2xf32> {jax.result_info = ""}) {
    %0 = call @f(%arg0) : (tensor<2xf32>) -> tensor<2xf32> loc(#loc)
    return %0 : tensor<2xf32>
  } loc(#loc)
  func.func private @f(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    func.return %arg0 : tensor<2xf32>
  }
}
"""  # noqa: E501  # as JAX writes it
    module = parse_module(text)
    assert module.name == "m" and [*module.functions] == ["main", "f"]
    main = module.functions["main"]
    assert main.argument_attributes[0]["jax.arg_info"] == "x"
    assert main.body.operations[0].attributes["callee"] == Symbol("f")
    assert main.visibility == "public" and module.entry() is main
    assert len(parse_modules(text + "// -----\n" + text)) == 2
    with pytest.raises(ParseError, match=r"one module is expected, the text has 2"):
        parse_module(text + "// -----\n" + text)


def test_a_generic_module() -> None:
    text = """
"builtin.module"() <{sym_name = "m"}> ({
  "func.func"() <{function_type = (tensor<2xf32>) -> tensor<2xf32>, sym_name = "main"}> ({
  ^bb0(%arg0: tensor<2xf32>):
    "func.return"(%arg0) : (tensor<2xf32>) -> ()
  }) : () -> ()
}) : () -> ()
"""
    assert parse_module(text).functions["main"].results == (Tensor((2,), F32),)


def constant(literal: str, type_: str) -> np.ndarray:
    text = function(f"%0 = stablehlo.constant dense<{literal}> : {type_}")
    value = body(text)[0].attributes["value"]
    assert isinstance(value, Elements)
    return value.value


def test_constants() -> None:
    assert constant("[[1, 2], [3, -4]]", "tensor<2x2xi8>").tolist() == [[1, 2], [3, -4]]
    assert constant("0.1", "tensor<3xf32>").tolist() == [np.float32(0.1)] * 3
    assert constant("0x7F800000", "tensor<f32>") == np.inf
    assert constant("[0x3C00, 1.5]", "tensor<2xf16>").tolist() == [1.0, 1.5]
    assert constant("[true, false]", "tensor<2xi1>").tolist() == [True, False]
    assert constant("[(1.0, -2.0)]", "tensor<1xcomplex<f32>>").tolist() == [1 - 2j]
    assert constant('"0x0000803F00000040"', "tensor<2xf32>").tolist() == [1, 2]
    assert constant("18446744073709551615", "tensor<ui64>") == 2**64 - 1
    assert constant("", "tensor<0x3xi32>").shape == (0, 3)
    assert constant("[-0.0, 2.0]", "tensor<2xbf16>").tobytes() == b"\x00\x80\x00\x40"
    whole = constant("1.0", "tensor<1000000x1000000xf64>")
    assert whole.shape == (10**6, 10**6) and whole.strides == (0, 0)


def test_types() -> None:
    types = "%a: tensor<?x2xi1>, %b: tensor<3xcomplex<f64>>, %c: tensor<ui4>, %d: !stablehlo.token"
    main = parse_module(function("", types)).functions["main"]
    assert [argument.type for argument in main.body.arguments][:3] == [
        Tensor((None, 2), Integer(1)),
        Tensor((3,), Complex(Float("f64"))),
        Tensor((), Integer(4, False)),
    ]
    text = "%a: tensor<2x!quant.uniform<i8<-127:127>:f32:0, {0.1:-30, 0.5}>>"
    element = parse_module(function("", text)).functions["main"].body.arguments[0].type.element
    assert element == Quantized(Integer(8), F32, (0.1, 0.5), (-30, 0), 0, -127, 127)
    for written in ("tensor<2x!quant.uniform<i8:f32, 0.5:3>>", "tensor<?x?xf8E4M3FN>"):
        main = parse_module(function("", f"%a: {written}")).functions["main"]
        assert str(main.body.arguments[0].type) == written


def test_attributes() -> None:
    dims = Convolved(("b", "0", "f"), ("0", "i", "o"), ("b", "0", "f"))
    text = '"x.y"() {a = [1, "s"], b = {c}, d = @f, e = #stablehlo.conv<[b, 0, f]x[0, i, o]->'
    text += "[b, 0, f]>, g = array<i1: true>, h = 2.5 : f32, i = tensor<2xf32>, j = #x<[a]>} "
    result = body(function(text + ": () -> ()"))[0].attributes
    assert result["a"] == [1, "s"] and result["b"] == {"c": True} and result["d"] == Symbol("f")
    assert result["e"] == dims and result["g"] == (True,) and result["h"] == 2.5
    assert result["i"] == Tensor((2,), F32)
    assert body(function('"x.y"() {a = LT} : () -> ()'))[0].attributes["a"] == Word("LT")


def test_places() -> None:
    text = function("  %0 = stablehlo.iota dim = 0 : tensor<4xi32>")
    operation = body(text)[0]
    assert operation.span.place == "line 2, column 8"
    assert operation.places["iota_dimension"].place == "line 2, column 23"


A = "%a: tensor<2xf32>"
REFUSED = {
    "undefined": ("%0 = stablehlo.add %a, %b : tensor<2xf32>", r"%b is not defined here"),
    "twice": ("%a = stablehlo.abs %a : tensor<2xf32>\n%a = stablehlo.abs %a : tensor<2xf32>",
              r"%a is defined twice"),
    "types": ('%0 = "stablehlo.abs"(%a) : (tensor<3xf32>) -> tensor<3xf32>',
              r"%a is of type tensor<2xf32>, not tensor<3xf32>"),
    "types count": ('%0 = "stablehlo.abs"(%a) : () -> tensor<3xf32>', r"1 operands have 0 types"),
    "results": ("%0:2 = stablehlo.abs %a : tensor<2xf32>", r"gives 1 results, 2 are named"),
    "many results": ("%0:123456789 = stablehlo.abs %a : tensor<2xf32>", r"no operation gives"),
    "result number": ("%0#1 = stablehlo.abs %a : tensor<2xf32>", r"'#' picks one"),
    "no operation": ("%0 = add %a : tensor<2xf32>", r"'add' is no operation"),
    "no type": ("%0 = stablehlo.abs %a", r"expected ':' and the type"),
    "element type": ("%0 = stablehlo.iota dim = 0 : tensor<4xf33>", r"unknown element type 'f33'"),
    "width": ("%0 = stablehlo.iota dim = 0 : tensor<4xi33>", r"unknown element type 'i33'"),
    "complex": ("%0 = stablehlo.iota dim = 0 : tensor<4xcomplex<i8>>", r"parts of f32 or f64"),
    "too large": ("%0 = stablehlo.iota dim = 0 : tensor<99999999x99999999xf32>", r"too large"),
    "digits": ("%0 = stablehlo.iota dim = 0 : tensor<" + "9" * 5000 + "xf32>", r"too large"),
    "number": ("%0 = stablehlo.iota dim = " + "9" * 5000 + " : tensor<4xi8>", r"too large"),
    "shape": ("%0 = stablehlo.constant dense<[1, 2]> : tensor<3xi8>",
              r"has the shape \[2\], but the type is tensor<3xi8>"),
    "ragged": ("%0 = stablehlo.constant dense<[[1], [2, 3]]> : tensor<2x2xi8>",
               r"differ in length"),
    "range": ("%0 = stablehlo.constant dense<300> : tensor<i8>", r"300 is no value of i8"),
    "float": ("%0 = stablehlo.constant dense<1.5> : tensor<i8>", r"1.5 is no value of i8"),
    "pair": ("%0 = stablehlo.constant dense<(1.0, 2.0)> : tensor<f32>", r"a pair is no value"),
    "no pair": ("%0 = stablehlo.constant dense<1.0> : tensor<complex<f32>>", r"written in pairs"),
    "bits": ("%0 = stablehlo.constant dense<0x12345> : tensor<f16>", r"more bits than f16"),
    "bytes": ('%0 = stablehlo.constant dense<"0x00"> : tensor<2xf32>', r"has 1 bytes, .* has 8"),
    "no bytes": ('%0 = stablehlo.constant dense<"0xZZ"> : tensor<2xf32>', r"no bytes"),
    "no 0x": ('%0 = stablehlo.constant dense<"00"> : tensor<2xf32>', r"begins with 0x"),
    "open constant": ("%0 = stablehlo.constant dense<1> : tensor<?xi8>", r"cannot be of type"),
    "attribute twice": ('"x.y"() {a = 1, a = 2} : () -> ()', r"'a' stands here twice"),
    "setting twice": ("%0 = stablehlo.iota dim = 0, dim = 1 : tensor<4xi8>", r"said twice"),
    "operand": ("%0 = stablehlo.add %a, FOO : tensor<2xf32>", r"expected an operand"),
    "format": ("%0 = stablehlo.reduce_precision %a, format = x : tensor<2xf32>", r"another shape"),
    "pairs": ("%0 = stablehlo.dot_general %a, %a, contracting_dims = [0] : (tensor<2xf32>, "
              "tensor<2xf32>) -> tensor<f32>", r"dims of both operands"),
    "window": ("%0 = stablehlo.convolution(%a, %a) dim_numbers = [b]x[i]->[b], window = {x = 1}"
               " : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>", r"a window has no 'x'"),
    "blocks": ('%0 = "x.y"() ({\n^a:\n"x.z"() : () -> ()\n^b:\n}) : () -> tensor<f32>',
               r"a region has one block"),
    "character": ("%0 = stablehlo.abs \\ %a", r"has no meaning here"),
    "scale": ("%0 = stablehlo.abs %a : tensor<2x!quant.uniform<i8:f32, 0.0>>", r"not positive"),
    "axis": ("%0 = stablehlo.abs %a : tensor<2x!quant.uniform<i8:f32, {0.1, 0.2}>>", r"an axis"),
    "storage": ("%0 = stablehlo.abs %a : tensor<2x!quant.uniform<f32:f32, 0.1>>", r"as integers"),
    "quantized range": ("%0 = stablehlo.abs %a : tensor<2x!quant.uniform<i8<-200:3>:f32, 0.1>>",
                        r"no range of i8"),
    "expressed": ("%0 = stablehlo.abs %a : tensor<2x!quant.uniform<i8:i8, 0.1>>", r"for floats"),
    "applied": ("%0 = stablehlo.reduce(%a init: %a), (%a init: %a) applies stablehlo.add across "
                "dimensions = [0] : (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)"
                " -> tensor<f32>", r"applied to one tensor"),
    "reducer": ("%0 = stablehlo.reduce(%a init: %a) across dimensions = [0] : (tensor<2xf32>, "
                "tensor<2xf32>) -> tensor<f32> reducer(%x: tensor<f32>) {}", r"takes two values"),
    "brackets": ("%0 = stablehlo.abs %a : !x<[", r"is not closed"),
    "deep": ("%0 = stablehlo.abs %a : " + "tuple<" * 100, r"nested too deeply"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    operations, message = REFUSED[name]
    with pytest.raises(ParseError, match=message) as caught:
        parse_module(function(operations, A))
    assert caught.value.span is not None and caught.value.cure


@pytest.mark.parametrize(
    "text, message",
    [
        ("", r"one module is expected, the text has 0"),
        ("module {", r"the text ends"),
        ("func.func @f() { return", r"the text ends"),
        ("func.func @f()", r"expected the body"),
        ("func.func @f() {}", r"a function ends with a return"),
        ("func.func @f() -> tensor<f32> { return }", r"returns \(\), but is declared to give"),
        ("func.func @f() { return } func.func @f() { return }", r"@f is defined twice"),
        ("stablehlo.add", r"expected a function"),
        ('"builtin.module"() ({ "func.func"() ({ "func.return"() : () -> () }) : () -> () })',
         r"a function has a name and a type"),
        ('"builtin.module"() ({ "func.func"() <{sym_name = "f", function_type = (tensor<f32>) -> '
         '()}> ({ "func.return"() : () -> () }) : () -> () })', r"takes other types"),
        ("module @m {\n  func.func @f(%a: tensor<f32>) {\n    return %b : tensor<f32>\n  }\n}",
         r"at line 3, column 12"),
    ],
)  # fmt: skip
def test_refused_modules(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_module(text)


def test_the_file_is_named() -> None:
    with pytest.raises(ParseError, match=r"at model\.mlir:1:1"):
        parse_module("x", "model.mlir")


@pytest.mark.parametrize(
    "text", ["func.func", "func.func private (%a", "func.func @f(", "module { func.func"]
)
def test_functions_that_end_too_early_are_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_module(text)
