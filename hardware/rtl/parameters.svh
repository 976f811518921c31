// Written by hardware/parameters.py from the software's constants.
localparam logic [23:0] ID_ROUND = 24'h243f6a;
