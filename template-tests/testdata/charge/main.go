// Command charge is something to build.
package main

func main() {}
