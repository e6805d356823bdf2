// Command hello is compiled by the test.
package main

import "fmt"

func main() { fmt.Println("hello") }
