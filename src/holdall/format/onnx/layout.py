"""ONNX: one protobuf message. The fields that hold weights, by message and number.

=============== ======================================================================================================
ModelProto      1 ir_version, 7 graph, 8 opset_import, 14 metadata_props, 20 training_info, 25 functions, and more
TrainingInfo    1 initialization, 2 algorithm, both graphs
GraphProto      1 node, 2 name, 5 initializer, 11 input, 12 output, 13 value_info, 15 sparse_initializer, and more
FunctionProto   1 name, 4 input, 7 node, 10 domain, 11 attribute_proto, and more
NodeProto       1 input, 2 output, 4 op_type, 5 attribute, 7 domain, and more
AttributeProto  1 name, 5 t, 6 g, 10 tensors, 11 graphs, 22 sparse_tensor, 23 sparse_tensors, and more
SparseTensor    1 values, 2 indices, both tensors; 3 dims
TensorProto     1 dims, 2 data_type, 4 float_data, 5 int32_data, 6 string_data, 7 int64_data, 8 name, 9 raw_data,
                10 double_data, 11 uint64_data, 13 external_data, 14 data_location
=============== ======================================================================================================
"""

from __future__ import annotations

from typing import Final

from holdall.binary.kernels.protobuf_tokens import RECORD

__all__ = ["CODE_OF", "DTYPES", "INSIDE", "IR_OF", "OPSET_OF", "STRING", "TEXTS"]

IR_VERSION, GRAPH, OPSET, PROPS, TRAINING, FUNCTIONS = 1, 7, 8, 14, 20, 25
INITIALIZATION, ALGORITHM = 1, 2
NODE, INITIALIZER, SPARSE_INITIALIZER = 1, 5, 15
GRAPH_INPUT = 11
FUNCTION_NAME, FUNCTION_INPUT, NODE_OF_FUNCTION, FUNCTION_DOMAIN, ATTRIBUTE_OF_FUNCTION = 1, 4, 7, 10, 11
TAKES, GIVES, OP_TYPE, ATTRIBUTE, DOMAIN = 1, 2, 4, 5, 7
ATTRIBUTE_NAME, T, G, TENSORS, GRAPHS, SPARSE_TENSOR, SPARSE_TENSORS = 1, 5, 6, 10, 11, 22, 23
VALUES, INDICES = 1, 2
DIMS, DATA_TYPE, FLOATS, INT32S, STRINGS, INT64S, NAME, RAW, DOUBLES, UINT64S, EXTERNAL, LOCATION = (
    1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14,
)  # fmt: skip
NUMBERS = (FLOATS, INT32S, STRINGS, INT64S, DOUBLES, UINT64S)
STRING: Final = 8
TEXTS: Final = "onnx.string"  # the type of tensors of texts, which are copied but not decoded

# The messages that tensors lie in: by kind of message and number of a field, the kind of the message in that field.
MODEL, TRAINING_INFO, GRAPH_PROTO, FUNCTION, NODE_PROTO, ATTRIBUTE_PROTO, SPARSE = range(7)
INSIDE: Final = {
    (MODEL, GRAPH): GRAPH_PROTO,
    (MODEL, TRAINING): TRAINING_INFO,
    (MODEL, FUNCTIONS): FUNCTION,
    (TRAINING_INFO, INITIALIZATION): GRAPH_PROTO,
    (TRAINING_INFO, ALGORITHM): GRAPH_PROTO,
    (GRAPH_PROTO, NODE): NODE_PROTO,
    (GRAPH_PROTO, INITIALIZER): RECORD,
    (GRAPH_PROTO, SPARSE_INITIALIZER): SPARSE,
    (FUNCTION, NODE_OF_FUNCTION): NODE_PROTO,
    (FUNCTION, ATTRIBUTE_OF_FUNCTION): ATTRIBUTE_PROTO,
    (NODE_PROTO, ATTRIBUTE): ATTRIBUTE_PROTO,
    (ATTRIBUTE_PROTO, T): RECORD,
    (ATTRIBUTE_PROTO, G): GRAPH_PROTO,
    (ATTRIBUTE_PROTO, TENSORS): RECORD,
    (ATTRIBUTE_PROTO, GRAPHS): GRAPH_PROTO,
    (ATTRIBUTE_PROTO, SPARSE_TENSOR): SPARSE,
    (ATTRIBUTE_PROTO, SPARSE_TENSORS): SPARSE,
    (SPARSE, VALUES): RECORD,
    (SPARSE, INDICES): RECORD,
}

DTYPES: Final = {
    1: "f32",
    2: "u8",
    3: "i8",
    4: "u16",
    5: "i16",
    6: "i32",
    7: "i64",
    9: "bool",
    10: "f16",
    11: "f64",
    12: "u32",
    13: "u64",
    14: "c64",
    15: "c128",
    16: "bf16",
    17: "f8_e4m3",
    18: "f8_e4m3fnuz",
    19: "f8_e5m2",
    20: "f8_e5m2fnuz",
    21: "u4",
    22: "i4",
    23: "f4_e2m1",
    24: "f8_e8m0",
    25: "u2",
    26: "i2",
    27: "f6_e2m3",
    28: "f6_e3m2",
}
CODE_OF: Final = {name: code for code, name in DTYPES.items()}

# The oldest version that is written, the versions that types newer than it need, and the operator set of each version.
OLDEST: Final = 8
IR_OF: Final = {
    "f8_e4m3": 9, "f8_e4m3fnuz": 9, "f8_e5m2": 9, "f8_e5m2fnuz": 9, "u4": 10, "i4": 10, "f4_e2m1": 11, "f8_e8m0": 12,
    "u2": 13, "i2": 13, "f6_e2m3": 14, "f6_e3m2": 14,
}  # fmt: skip
OPSET_OF: Final = {8: 17, 9: 19, 10: 21, 11: 23, 12: 24, 13: 25, 14: 28}
