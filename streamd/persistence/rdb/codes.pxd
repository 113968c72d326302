# cython: language_level=3
"""The numbers of the RDB format: opcodes, types of values, encodings of strings.

Everything that reads or writes the format takes them from here.

Compiled modules cimport them; Python modules import them from the module of this name.
"""

cpdef enum:
    # Opcodes: bytes that may appear in place of a value's type.
    OP_HASH_TEMPLATE = 242          # Redis 8.10
    OP_KEY_METADATA = 243
    OP_SLOT_INFO = 244
    OP_FUNCTION = 245
    OP_FUNCTION_PRERELEASE = 246    # of a pre-release of Redis 7.0
    OP_MODULE_AUX = 247
    OP_IDLE = 248
    OP_FREQUENCY = 249
    OP_AUX = 250
    OP_RESIZE = 251
    OP_EXPIRE_MS = 252
    OP_EXPIRE = 253
    OP_SELECT = 254
    OP_END = 255

    # Types of values. Streams: each type adds to the one before.
    TYPE_STRING = 0
    TYPE_LIST = 1
    TYPE_SET = 2
    TYPE_SORTED_SET_TEXT = 3        # scores as text
    TYPE_HASH = 4
    TYPE_SORTED_SET = 5             # scores as doubles
    TYPE_MODULE_PRERELEASE = 6
    TYPE_MODULE = 7
    TYPE_HASH_ZIPMAP = 9
    TYPE_LIST_ZIPLIST = 10
    TYPE_SET_INTSET = 11
    TYPE_SORTED_SET_ZIPLIST = 12
    TYPE_HASH_ZIPLIST = 13
    TYPE_LIST_OF_ZIPLISTS = 14
    TYPE_STREAM = 15                # Redis 5.0
    TYPE_HASH_LISTPACK = 16
    TYPE_SORTED_SET_LISTPACK = 17
    TYPE_LIST_OF_LISTPACKS = 18     # and of plain nodes
    TYPE_STREAM_2 = 19              # Redis 7.0
    TYPE_SET_LISTPACK = 20
    TYPE_STREAM_3 = 21              # Redis 7.2
    TYPE_HASH_TTL_PRERELEASE = 22   # hashes whose fields expire; of a pre-release of Redis 7.4
    TYPE_HASH_LISTPACK_TTL_PRERELEASE = 23
    TYPE_HASH_TTL = 24
    TYPE_HASH_LISTPACK_TTL = 25
    TYPE_STREAM_4 = 26              # Redis 8.6
    TYPE_STREAM_5 = 27              # Redis 8.8
    TYPE_ARRAY = 28                 # Redis 8.8
    TYPE_HASH_TEMPLATE = 29         # these four: Redis 8.8 and 8.10
    TYPE_HASH_TEMPLATE_2 = 30
    TYPE_HASH_TEMPLATE_3 = 31
    TYPE_HASH_TEMPLATE_4 = 32

    # Encodings of strings that are not stored as length and bytes.
    STRING_INT8 = 0
    STRING_INT16 = 1
    STRING_INT32 = 2
    STRING_LZF = 3
