"""Cost of machines: imported price lists over those of the catalog, offers by device, spot, energy.

Pure functions of hardware and figures, but for the readers of price lists (`lists`) and the files in the
user's own folder (`book`). Nothing here fetches anything. May be imported by search, answers and report.
"""
