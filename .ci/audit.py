"""Look up installed packages among known vulnerabilities, where that can be done.

The database is on the internet. What it does not answer for is not checked, and this
says so: an audit of nothing finds nothing.
"""

import argparse
import json
import subprocess
import sys


def run_pip_audit():
    """Return the packages as pip-audit saw them, or None if it got no answer."""
    command = [sys.executable, "-m", "pip_audit", "--skip-editable"]
    command += ["--format", "json", "--progress-spinner", "off", "--timeout", "10"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        return json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, json.JSONDecodeError):
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--report-only",
        action="store_true",
        help="succeed whatever is found: a change is not to blame for it",
    )
    report_only = parser.parse_args().report_only
    packages = run_pip_audit() or []
    audited = [package for package in packages if "vulns" in package]
    if not audited:
        print("audit: NOT DONE, the database of vulnerabilities gives no answer here")
        return 0 if report_only else 1
    found = [(package, entry) for package in audited for entry in package["vulns"]]
    for package, entry in found:
        fixed = ", ".join(entry["fix_versions"]) or "no release yet"
        print(
            f"audit: {package['name']} {package['version']}: {entry['id']}, "
            f"fixed in {fixed}"
        )
    print(
        f"audit: {len(found)} known vulnerabilities in {len(audited)} packages; "
        f"{len(packages) - len(audited)} could not be looked up"
    )
    return 0 if report_only or not found else 1


if __name__ == "__main__":
    sys.exit(main())
