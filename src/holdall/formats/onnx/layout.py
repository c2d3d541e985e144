"""ONNX: one protobuf message. The fields that hold weights, by message and number.

=============== ======================================================================================================
ModelProto      1 ir_version, 7 graph, 8 opset_import, 14 metadata_props, and more
GraphProto      1 node, 2 name, 5 initializer, and more
TensorProto     1 dims, 2 data_type, 4 float_data, 5 int32_data, 6 string_data, 7 int64_data, 8 name, 9 raw_data,
                10 double_data, 11 uint64_data, 13 external_data, 14 data_location
=============== ======================================================================================================
"""

from __future__ import annotations

from typing import Final

__all__ = ["CODE_OF", "DTYPES", "IR_OF", "OPSET_OF", "STRING"]

IR_VERSION, GRAPH, OPSET, PROPS = 1, 7, 8, 14
INITIALIZER = 5
DIMS, DATA_TYPE, FLOATS, INT32S, STRINGS, INT64S, NAME, RAW, DOUBLES, UINT64S, EXTERNAL, LOCATION = (
    1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14,
)  # fmt: skip
NUMBERS = (FLOATS, INT32S, STRINGS, INT64S, DOUBLES, UINT64S)
STRING: Final = 8

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

# The first version of the format that has a type, where the oldest one written here has not, and the operators of it.
OLDEST: Final = 8
IR_OF: Final = {
    "f8_e4m3": 9, "f8_e4m3fnuz": 9, "f8_e5m2": 9, "f8_e5m2fnuz": 9, "u4": 10, "i4": 10, "f4_e2m1": 11, "f8_e8m0": 12,
    "u2": 13, "i2": 13, "f6_e2m3": 14, "f6_e3m2": 14,
}  # fmt: skip
OPSET_OF: Final = {8: 17, 9: 19, 10: 21, 11: 23, 12: 24, 13: 25, 14: 28}
