"""The names of all fields of ONNX messages, as in ``onnx.proto``, for people who look into a file."""

from __future__ import annotations

from functools import cache
from typing import Final

__all__ = ["DATA_TYPES", "find_fields"]

# Of each message its fields: number, name, and type, which is another message if it begins with a capital.
_MESSAGES: Final = {
    "ModelProto": (
        "1 ir_version int64, 2 producer_name string, 3 producer_version string, 4 domain string, 5 "
        "model_version int64, 6 doc_string string, 7 graph GraphProto, 8 opset_import OperatorSetIdProto, 14 "
        "metadata_props StringStringEntryProto, 20 training_info TrainingInfoProto, 25 functions "
        "FunctionProto, 26 configuration DeviceConfigurationProto"
    ),
    "OperatorSetIdProto": "1 domain string, 2 version int64",
    "GraphProto": (
        "1 node NodeProto, 2 name string, 5 initializer TensorProto, 10 doc_string string, 11 input "
        "ValueInfoProto, 12 output ValueInfoProto, 13 value_info ValueInfoProto, 14 quantization_annotation "
        "TensorAnnotation, 15 sparse_initializer SparseTensorProto, 16 metadata_props StringStringEntryProto"
    ),
    "NodeProto": (
        "1 input string, 2 output string, 3 name string, 4 op_type string, 5 attribute AttributeProto, 6 "
        "doc_string string, 7 domain string, 8 overload string, 9 metadata_props StringStringEntryProto, 10 "
        "device_configurations NodeDeviceConfigurationProto"
    ),
    "AttributeProto": (
        "1 name string, 2 f float, 3 i int64, 4 s bytes, 5 t TensorProto, 6 g GraphProto, 7 floats float, 8 "
        "ints int64, 9 strings bytes, 10 tensors TensorProto, 11 graphs GraphProto, 13 doc_string string, 14 "
        "tp TypeProto, 15 type_protos TypeProto, 20 type enum, 21 ref_attr_name string, 22 sparse_tensor "
        "SparseTensorProto, 23 sparse_tensors SparseTensorProto"
    ),
    "TensorProto": (
        "1 dims int64, 2 data_type int32, 3 segment TensorProto.Segment, 4 float_data float, 5 int32_data "
        "int32, 6 string_data bytes, 7 int64_data int64, 8 name string, 9 raw_data bytes, 10 double_data "
        "double, 11 uint64_data uint64, 12 doc_string string, 13 external_data StringStringEntryProto, 14 "
        "data_location enum, 16 metadata_props StringStringEntryProto"
    ),
    "TensorProto.Segment": "1 begin int64, 2 end int64",
    "StringStringEntryProto": "1 key string, 2 value string",
    "SparseTensorProto": "1 values TensorProto, 2 indices TensorProto, 3 dims int64",
    "TypeProto": (
        "1 tensor_type TypeProto.Tensor, 4 sequence_type TypeProto.Sequence, 5 map_type TypeProto.Map, 6 "
        "denotation string, 7 opaque_type TypeProto.Opaque, 8 sparse_tensor_type TypeProto.SparseTensor, 9 "
        "optional_type TypeProto.Optional"
    ),
    "TypeProto.Tensor": "1 elem_type int32, 2 shape TensorShapeProto",
    "TensorShapeProto": "1 dim TensorShapeProto.Dimension",
    "TensorShapeProto.Dimension": "1 dim_value int64, 2 dim_param string, 3 denotation string",
    "TypeProto.Sequence": "1 elem_type TypeProto",
    "TypeProto.Map": "1 key_type int32, 2 value_type TypeProto",
    "TypeProto.Optional": "1 elem_type TypeProto",
    "TypeProto.SparseTensor": "1 elem_type int32, 2 shape TensorShapeProto",
    "TypeProto.Opaque": "1 domain string, 2 name string",
    "NodeDeviceConfigurationProto": (
        "1 configuration_id string, 2 sharding_spec ShardingSpecProto, 3 pipeline_stage int32"
    ),
    "ShardingSpecProto": (
        "1 tensor_name string, 2 device int64, 3 index_to_device_group_map IntIntListEntryProto, 4 "
        "sharded_dim ShardedDimProto"
    ),
    "IntIntListEntryProto": "1 key int64, 2 value int64",
    "ShardedDimProto": "1 axis int64, 2 simple_sharding SimpleShardedDimProto",
    "SimpleShardedDimProto": "1 dim_value int64, 2 dim_param string, 3 num_shards int64",
    "ValueInfoProto": "1 name string, 2 type TypeProto, 3 doc_string string, 4 metadata_props StringStringEntryProto",
    "TensorAnnotation": "1 tensor_name string, 2 quant_parameter_tensor_names StringStringEntryProto",
    "TrainingInfoProto": (
        "1 initialization GraphProto, 2 algorithm GraphProto, 3 initialization_binding "
        "StringStringEntryProto, 4 update_binding StringStringEntryProto"
    ),
    "FunctionProto": (
        "1 name string, 4 input string, 5 output string, 6 attribute string, 7 node NodeProto, 8 doc_string "
        "string, 9 opset_import OperatorSetIdProto, 10 domain string, 11 attribute_proto AttributeProto, 12 "
        "value_info ValueInfoProto, 13 overload string, 14 metadata_props StringStringEntryProto"
    ),
    "DeviceConfigurationProto": "1 name string, 2 num_devices int32, 3 device string",
}

DATA_TYPES: Final = (
    "UNDEFINED", "FLOAT", "UINT8", "INT8", "UINT16", "INT16", "INT32", "INT64", "STRING", "BOOL", "FLOAT16", "DOUBLE",
    "UINT32", "UINT64", "COMPLEX64", "COMPLEX128", "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2",
    "FLOAT8E5M2FNUZ", "UINT4", "INT4", "FLOAT4E2M1", "FLOAT8E8M0", "UINT2", "INT2", "FLOAT6E2M3", "FLOAT6E3M2",
)  # fmt: skip


@cache
def find_fields(message: str) -> dict[int, tuple[str, str]]:
    """The name and the type of each field of ``message``, by number.

    >>> find_fields("StringStringEntryProto")
    {1: ('key', 'string'), 2: ('value', 'string')}
    """
    found = {}
    for field in _MESSAGES[message].split(", "):
        number, name, type = field.split(" ")
        found[int(number)] = name, type
    return found
