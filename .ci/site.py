"""A hook of mkdocs (mkdocs.yml): links that leave docs/ lead to the repository."""

import posixpath
import re

LINK = re.compile(r"\]\((\.\./[^)\s]*)\)")


def on_page_markdown(markdown, page, config, files):
    folder = posixpath.dirname("docs/" + page.file.src_uri)

    def absolute(match):
        target, _, anchor = match.group(1).partition("#")
        path = posixpath.normpath(posixpath.join(folder, target))
        if path == "docs" or path.startswith("docs/"):
            name = path.removeprefix("docs/")
            if name.endswith(".md") or not name.startswith("examples/") and files.get_file_from_path(name):
                return match.group(0)
        url = config["repo_url"].rstrip("/") + "/blob/main/" + path
        return "](" + url + ("#" + anchor if anchor else "") + ")"

    return LINK.sub(absolute, markdown)
