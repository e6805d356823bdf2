// Package processes holds the tests that need more than one process: callers of
// one key in several of them, a process killed in its handler, and one stopped
// past its lease that wakes up after it was taken over. The processes are copies
// of the test binary, over one table on DynamoDB Local.
package processes
