"""Stores that several nodes share: Valkey or Redis, object stores, shared directories.

The clients (redis, obstore) are imported by the modules named after them; importing this
package needs neither.
"""
