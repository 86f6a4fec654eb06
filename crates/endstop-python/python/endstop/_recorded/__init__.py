"""Backtests and audits over files, object stores and tables, on one machine or on a cluster.

`_parts` divides the input, `_rows` reads tables, `_engines` counts the parts in threads, or with Ray,
Spark or Dask. What is counted, and how counts are merged, is the compiled half's.
"""
