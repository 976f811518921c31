"""Case studies, tables and figures of Taffet (2019), and of the SC'19 talk on its methods."""
