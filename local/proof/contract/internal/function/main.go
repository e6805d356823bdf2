// Command function is the function that the contract's tests run.
package main

import "github.com/idem-go/idempotency/local/proof/contract/internal/service"

func main() { service.Main() }
