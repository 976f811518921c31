//! MPI calls: their numbers and arguments in binary files, and how Tailback interprets them.

use super::arguments::Field;

/// Number that ends the stream of calls.
pub(super) const END: u16 = 293;
/// Numbers of the two calls whose arguments begin with the command line.
pub(super) const INIT: u16 = 124;
pub(super) const INIT_THREAD: u16 = 171;

/// Names of the collectives, numbered as in `tailback.traffic.readers.otf2.names.OPERATIONS`.
pub(super) const OPERATIONS: [&str; 17] = [
    "MPI_Barrier",
    "MPI_Bcast",
    "MPI_Gather",
    "MPI_Gatherv",
    "MPI_Scatter",
    "MPI_Scatterv",
    "MPI_Allgather",
    "MPI_Allgatherv",
    "MPI_Alltoall",
    "MPI_Alltoallv",
    "MPI_Alltoallw",
    "MPI_Allreduce",
    "MPI_Reduce",
    "MPI_Reduce_scatter",
    "MPI_Scan",
    "MPI_Exscan",
    "MPI_Reduce_scatter_block",
];

/// What a call does, as far as it matters for a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallKind {
    /// Posts a send or receive and waits for it.
    Blocking,
    /// Posts a send or receive and returns a request.
    Nonblocking,
    Sendrecv,
    SendrecvReplace,
    Persistent,
    Start,
    Startall,
    /// Completes one request.
    Wait,
    Test,
    Waitall,
    Testall,
    Waitany,
    Testany,
    /// MPI_Waitsome and MPI_Testsome.
    Waitsome,
    Cancel,
    Collective(u8),
    CommSize,
    Split,
    Dup,
    CartCreate,
    CartSub,
    Create,
    Group,
    Include,
    Exclude,
    Nothing,
}

impl CallKind {
    pub fn of(name: &str) -> Self {
        if let Some(number) = OPERATIONS.iter().position(|&operation| operation == name) {
            return Self::Collective(number as u8);
        }
        match name.strip_prefix("MPI_").unwrap_or_default() {
            "Send" | "Bsend" | "Ssend" | "Rsend" | "Recv" => Self::Blocking,
            "Isend" | "Ibsend" | "Issend" | "Irsend" | "Irecv" => Self::Nonblocking,
            "Sendrecv" => Self::Sendrecv,
            "Sendrecv_replace" => Self::SendrecvReplace,
            name if name.ends_with("_init") => Self::Persistent,
            "Start" => Self::Start,
            "Startall" => Self::Startall,
            "Wait" => Self::Wait,
            "Test" => Self::Test,
            "Waitall" => Self::Waitall,
            "Testall" => Self::Testall,
            "Waitany" => Self::Waitany,
            "Testany" => Self::Testany,
            "Waitsome" | "Testsome" => Self::Waitsome,
            "Cancel" => Self::Cancel,
            "Comm_size" => Self::CommSize,
            "Comm_split" => Self::Split,
            "Comm_dup" => Self::Dup,
            "Cart_create" => Self::CartCreate,
            "Cart_sub" => Self::CartSub,
            "Comm_create" => Self::Create,
            "Comm_group" => Self::Group,
            "Group_incl" => Self::Include,
            "Group_excl" => Self::Exclude,
            _ => Self::Nothing,
        }
    }
}

/// Signature of a call in binary files: its name without `MPI_`, and code and field of each argument.
pub(super) struct Signature {
    pub name: &'static str,
    /// Codes are `b`, `h` and `i` for integers of 8, 16 and 32 bits; `H` and `I` for vectors of them
    /// after their length; `C` for text; `J` for vectors of vectors; `s` for statuses; `x`, `X` and
    /// `y` for integers of 32, vectors of 32 and integers of 16 bits that only the root of the call has.
    pub arguments: Vec<(u8, Option<Field>)>,
}

/// The calls whose arguments are known, by their number.
pub(super) fn signatures() -> Vec<Option<Signature>> {
    let mut out = Vec::new();
    for line in TABLE.lines() {
        let mut words = line.split(' ');
        let mut next = || words.next().unwrap_or_default();
        let number: usize = next().parse().unwrap_or_default();
        let (name, codes) = (next(), next());
        let codes = codes.bytes().filter(|&code| code != b'-');
        let arguments = codes.map(|code| (code, Field::named(next().as_bytes()))).collect();
        out.resize_with(number, || None);
        out.push(Some(Signature { name, arguments }));
    }
    out
}

/// Number, name, codes and names of the arguments (sst-dumpi, `dumpi/libundumpi`).
const TABLE: &str = "0 Send ihiih count datatype dest tag comm
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
225 Type_get_true_extent hii datatype lb extent";
