"""Operators of PyTorch and ONNX that are no layer of ours, or one without keys: views, activations, movers of
data."""

from __future__ import annotations

# of PyTorch: another shape of the same elements, or some of them
TORCH_VIEWS = frozenset(
    (
        *("view", "reshape", "flatten", "unflatten", "permute", "transpose", "t", "unsqueeze", "squeeze"),
        *(
            "expand",
            "expand_as",
            "slice",
            "select",
            "contiguous",
            "_unsafe_view",
            "view_as",
            "narrow",
            "chunk",
        ),
        *("split", "split_with_sizes", "unbind", "numpy_T", "swapaxes", "movedim", "diagonal", "getitem"),
        "repeat_interleave",
    )
)
# the same value under another name or in another number format
TORCH_SAME = frozenset(
    ("to", "_to_copy", "clone", "alias", "detach", "lift_fresh_copy", "type_as", "_assert_tensor_metadata")
)
TORCH_ACTIVATIONS = {
    **dict.fromkeys(("relu", "relu_", "relu6", "leaky_relu", "hardtanh", "hardtanh_"), "relu"),
    **dict.fromkeys(("silu", "silu_", "hardswish", "hardswish_", "mish"), "silu"),
    **dict.fromkeys(("sigmoid", "hardsigmoid"), "sigmoid"),
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax"), "softmax"),
    "gelu": "gelu",
    "tanh": "tanh",
}
# element by element, or a sum of them: one read and one write
TORCH_MOVING = frozenset(
    (
        *(
            "add",
            "add_",
            "sub",
            "rsub",
            "mul",
            "mul_",
            "div",
            "neg",
            "pow",
            "exp",
            "sqrt",
            "rsqrt",
            "cos",
            "sin",
        ),
        *("mean", "sum", "var", "abs", "clamp", "where", "masked_fill", "eq", "ne", "lt", "gt", "le", "ge"),
        *("cat", "stack", "index", "gather", "tril", "triu", "bitwise_and", "bitwise_or", "logical_and"),
        *("logical_not", "full_like", "zeros_like", "ones_like", "repeat", "roll", "pad", "constant_pad_nd"),
        *("copy_", "erf", "reciprocal", "square", "amax", "max", "cumsum", "argmax", "upsample_nearest2d"),
    )
)
ONNX_VIEWS = frozenset(
    (
        *("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Slice", "Split", "Gather"),
        *("Identity", "Cast"),
    )
)
ONNX_ACTIVATIONS = {
    **dict.fromkeys(("Relu", "LeakyRelu", "Clip"), "relu"),
    **dict.fromkeys(("Sigmoid", "HardSigmoid"), "sigmoid"),
    **dict.fromkeys(("Softmax", "LogSoftmax"), "softmax"),
    "Gelu": "gelu",
    "HardSwish": "silu",
    "Tanh": "tanh",
    "Dropout": "dropout",
}
ONNX_MOVING = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "Erf", "Exp", "Neg", "ReduceMean", "ReduceSum", "Where"),
        *("Concat", "Pad", "Reciprocal", "Max", "Min", "Abs", "Cos", "Sin"),
    )
)
MODULE_ACTIVATIONS = {
    **dict.fromkeys(("ReLU", "ReLU6", "LeakyReLU"), "relu"),
    **dict.fromkeys(("GELU", "NewGELUActivation", "GELUActivation"), "gelu"),
    **dict.fromkeys(("SiLU", "SiLUActivation", "Hardswish"), "silu"),
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Softmax": "softmax",
    "Dropout": "dropout",
}
