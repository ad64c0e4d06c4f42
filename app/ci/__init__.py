"""What a check tells GitHub: annotations on changed lines, a comment on the pull request, a job summary."""
