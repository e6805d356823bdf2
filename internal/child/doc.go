// Package child runs a server as a child process that cannot outlive the process that
// started it: it ends when its standard input does, and on Linux the kernel also kills it
// when its parent is gone. The child says where it listens with a line "Listening on
// host:port".
package child
