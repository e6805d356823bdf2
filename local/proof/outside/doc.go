// Package outside uses the local runtime from a user's module, with the commands and files of its page
// (local/README.md).
package outside
