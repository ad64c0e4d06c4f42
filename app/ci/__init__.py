"""The output of a check for GitHub: annotations, a comment on the pull request, a job summary."""
