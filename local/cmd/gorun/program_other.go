//go:build !unix

package gorun

func programOf(int) string { return "" }
