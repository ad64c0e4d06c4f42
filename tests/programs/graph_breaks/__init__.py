"""Programs as users write them, which the fixes of graph breaks were not written for; each leaves a
`result`.
"""
