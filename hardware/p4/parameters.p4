// Written by hardware/parameters.py from the software's constants.
const bit<24> ID_ROUND = 24w0x243f6a;
