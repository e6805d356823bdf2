// Package modules holds the modules of this repository to what their users get: it tags them,
// in a module proxy that is a folder, and requires and installs them from there.
package modules
