"""Calls in the binary files of SST DUMPI: their numbers and arguments.

All numbers are big-endian. A call is its number (16 bits), a mask of what follows (8 bits), a
thread (16 bits), the times of entry and exit of the processor's and the wall clock (16 bits of
seconds since the start and 32 of nanoseconds each) and its arguments.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

END = 293
"""Number that ends the stream of calls."""

STATUS, CPU, WALL, THREAD, COUNTERS = 3, 4, 8, 64, 128
"""Bits of the mask: what a call is followed by."""


class Signature(NamedTuple):
    """A call: its MPI name, and the code and name of each argument.

    Codes are ``b``, ``h`` and ``i`` for integers of 8, 16 and 32 bits; ``H`` and ``I`` for vectors
    of them after their length; ``C`` for text; ``J`` for vectors of vectors; ``s`` for statuses;
    ``x``, ``X`` and ``y`` for integers of 32, vectors of 32 and integers of 16 bits that only the
    root of the call has.
    """

    name: str
    codes: str
    arguments: tuple[str, ...]


_TABLE = """
0 Send ihiih count datatype dest tag comm
1 Recv ihiihs count datatype source tag comm status
2 Get_count shi status datatype count
3 Bsend ihiih count datatype dest tag comm
4 Ssend ihiih count datatype dest tag comm
5 Rsend ihiih count datatype dest tag comm
6 Buffer_attach i size
7 Buffer_detach i size
8 Isend ihiihi count datatype dest tag comm request
9 Ibsend ihiihi count datatype dest tag comm request
10 Issend ihiihi count datatype dest tag comm request
11 Irsend ihiihi count datatype dest tag comm request
12 Irecv ihiihi count datatype source tag comm request
13 Wait is request status
14 Test iis request flag status
15 Request_free i request
16 Waitany iIis count requests index status
17 Testany iIiis count requests index flag status
18 Waitall iIs count requests statuses
19 Testall iIis count requests flag statuses
20 Waitsome iIiIs count requests outcount indices statuses
21 Testsome iIiIs count requests outcount indices statuses
22 Iprobe iihis source tag comm flag status
23 Probe iihs source tag comm status
24 Cancel i request
25 Test_cancelled si status cancelled
26 Send_init ihiihi count datatype dest tag comm request
27 Bsend_init ihiihi count datatype dest tag comm request
28 Ssend_init ihiihi count datatype dest tag comm request
29 Rsend_init ihiihi count datatype dest tag comm request
30 Recv_init ihiihi count datatype source tag comm request
31 Start i request
32 Startall iI count requests
33 Sendrecv ihiiihiihs sendcount sendtype dest sendtag recvcount recvtype source recvtag comm status
34 Sendrecv_replace ihiiiihs count datatype dest sendtag source recvtag comm status
35 Type_contiguous ihh count oldtype newtype
36 Type_vector iiihh count blocklength stride oldtype newtype
37 Type_hvector iiihh count blocklength stride oldtype newtype
38 Type_indexed iIIhh count lengths indices oldtype newtype
39 Type_hindexed iIIhh count lengths indices oldtype newtype
40 Type_struct iIIHh count lengths indices oldtypes newtype
41 Address i address
42 Type_extent hi datatype extent
43 Type_size hi datatype size
44 Type_lb hi datatype lb
45 Type_ub hi datatype ub
46 Type_commit h datatype
47 Type_free h datatype
48 Get_elements shi status datatype elements
49 Pack ihiiih incount datatype outcount before after comm
50 Unpack iiiihh incount before after outcount datatype comm
51 Pack_size ihhi incount datatype comm size
52 Barrier h comm
53 Bcast ihih count datatype root comm
54 Gather iihihxy commrank sendcount sendtype root comm recvcount recvtype
55 Gatherv iiihihXXh commrank commsize sendcount sendtype root comm recvcounts displs recvtype
56 Scatter iihihxy commrank recvcount recvtype root comm sendcount sendtype
57 Scatterv iihihihXX commrank commsize sendtype recvcount recvtype root comm sendcounts displs
58 Allgather ihihh sendcount sendtype recvcount recvtype comm
59 Allgatherv iihIIhh commsize sendcount sendtype recvcounts displs recvtype comm
60 Alltoall ihihh sendcount sendtype recvcount recvtype comm
61 Alltoallv iIIhIIhh commsize sendcounts senddispls sendtype recvcounts recvdispls recvtype comm
62 Reduce ihbih count datatype op root comm
63 Op_create ib commute op
64 Op_free b op
65 Allreduce ihbh count datatype op comm
66 Reduce_scatter iIhbh commsize recvcounts datatype op comm
67 Scan ihbh count datatype op comm
68 Group_size hi group size
69 Group_rank hi group rank
70 Group_translate_ranks hiIhI group1 count ranks1 group2 ranks2
71 Group_compare hhb group1 group2 result
72 Comm_group hh comm group
73 Group_union hhh group1 group2 newgroup
74 Group_intersection hhh group1 group2 newgroup
75 Group_difference hhh group1 group2 newgroup
76 Group_incl hiIh group count ranks newgroup
77 Group_excl hiIh group count ranks newgroup
78 Group_range_incl hiJh group count ranges newgroup
79 Group_range_excl hiJh group count ranges newgroup
80 Group_free h group
81 Comm_size hi comm size
82 Comm_rank hi comm rank
83 Comm_compare hhb comm1 comm2 result
84 Comm_dup hh oldcomm newcomm
85 Comm_create hhh oldcomm group newcomm
86 Comm_split hiih oldcomm color key newcomm
87 Comm_free h comm
88 Comm_test_inter hi comm inter
95 Attr_put hi comm key
96 Attr_get hii comm key flag
97 Attr_delete hi comm key
98 Topo_test hb comm topo
99 Cart_create hiIIih oldcomm ndim dims periods reorder newcomm
100 Dims_create iiII nodes ndim before after
104 Cartdim_get hi comm ndim
105 Cart_get ihiIII ndim comm maxdims dims periods coords
106 Cart_rank ihIi ndim comm coords rank
107 Cart_coords ihiiI ndim comm rank maxdims coords
110 Cart_shift hiiii comm direction displ source dest
111 Cart_sub ihIh ndim oldcomm remain_dims newcomm
112 Cart_map hiIIi comm ndim dims period newrank
114 Get_processor_name Ci name resultlen
116 Errhandler_create h errhandler
117 Errhandler_set hh comm errhandler
118 Errhandler_get hh comm errhandler
119 Errhandler_free h errhandler
120 Error_string iCi errorcode errorstring resultlen
121 Error_class ii errorcode errorclass
122 Wtime -
123 Wtick -
125 Finalize -
126 Initialized i result
127 Abort hi comm errorcode
155 Alltoallw iIIHIIHh commsize sendcounts sdis sendtypes recvcounts rdis recvtypes comm
156 Exscan ihbh count datatype op comm
165 Comm_get_name hCi comm name resultlen
167 Comm_set_name hC comm name
172 Is_thread_main i flag
173 Query_thread b supported
178 Type_dup hh oldtype newtype
183 Type_get_name hCi datatype name resultlen
185 Type_set_name hC datatype name
195 Alloc_mem ih size info
196 Comm_create_errhandler h errhandler
197 Comm_get_errhandler hh comm errhandler
198 Comm_set_errhandler hh comm errhandler
202 Finalized i flag
203 Free_mem -
204 Get_address i address
205 Info_create h info
208 Info_free h info
213 Info_set hCC info key value
218 Type_create_hindexed iIIhh count blocklengths displacements oldtype newtype
219 Type_create_hvector iiihh count blocklength stride oldtype newtype
220 Type_create_indexed_block iiIhh count blocklength displacements oldtype newtype
221 Type_create_resized hiih oldtype lb extent newtype
222 Type_create_struct iIIHh count blocklengths displacements oldtypes newtype
224 Type_get_extent hii datatype lb extent
225 Type_get_true_extent hii datatype lb extent
"""

_INIT, _INIT_THREAD = 124, 171


def _signatures() -> dict[int, Signature]:
    out = {}
    for line in _TABLE.strip().split("\n"):
        number, name, codes, *arguments = line.split()
        out[int(number)] = Signature(f"MPI_{name}", codes.strip("-"), tuple(arguments))
    return out


SIGNATURES = _signatures()
"""The calls whose arguments are known, by their number."""


class _Layout(NamedTuple):
    """Arguments of a call: those of a fixed size that come first at once, the others one by one."""

    fixed: struct.Struct
    names: tuple[str, ...]
    others: tuple[tuple[str, str], ...]


def _layout(signature: Signature) -> _Layout:
    first = len(signature.codes) - len(signature.codes.lstrip("bhi"))
    others = zip(signature.codes[first:], signature.arguments[first:], strict=True)
    fixed = struct.Struct(">" + signature.codes[:first])
    return _Layout(fixed, signature.arguments[:first], tuple(others))


_LAYOUTS = {number: _layout(signature) for number, signature in SIGNATURES.items()}


class Cursor:
    """Takes numbers and arguments off the bytes of a file; struct.error where they end."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def take(self, form: str) -> int:
        """The next number of a ``struct`` format of one."""
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return int(value)

    def vector(self, form: str = "i") -> list[int]:
        """A vector of numbers after its length."""
        length = self.take(">i")
        width = struct.calcsize(form)
        if length < 0 or self.at + width * length > len(self.data):
            raise struct.error(f"a vector of {length} numbers")
        values = list(struct.unpack_from(f">{length}{form}", self.data, self.at))
        self.at += width * length
        return values

    def skip_text(self) -> None:
        """Text after its length."""
        length = self.take(">i")
        if length < 0 or self.at + length > len(self.data):
            raise struct.error(f"a text of {length} bytes")
        self.at += length

    def statuses(self) -> list[tuple[int, int]]:
        """Source and tag of each status."""
        out = []
        for _ in range(self.take(">i")):
            _, source, _, _, tag = struct.unpack_from(">iibbi", self.data, self.at)
            self.at += 14
            out.append((source, tag))
        return out

    def call(self, number: int, mask: int) -> tuple[str, dict[str, Any]]:
        """Name and arguments of a call; KeyError for one whose arguments are not known."""
        if number in (_INIT, _INIT_THREAD):
            for _ in range(self.take(">i")):
                self.skip_text()
            if number == _INIT_THREAD:
                self.at += 2
            return "MPI_Init", {}
        fixed, names, others = _LAYOUTS[number]
        arguments: dict[str, Any] = dict(
            zip(names, fixed.unpack_from(self.data, self.at), strict=True)
        )
        self.at += fixed.size
        for code, name in others:
            if code in "xXy" and arguments["commrank"] != arguments["root"]:
                continue
            arguments[name] = self._argument(code, mask)
        return SIGNATURES[number].name, arguments

    def _argument(self, code: str, mask: int) -> Any:
        if code in "bhi":
            return self.take(">" + code)
        if code in "xy":
            return self.take(">i" if code == "x" else ">h")
        if code in "IX":
            return self.vector()
        if code == "H":
            return self.vector("h")
        if code == "J":
            return [self.vector() for _ in range(self.take(">i"))]
        if code == "C":
            return self.skip_text()
        return self.statuses() if mask & STATUS else []
