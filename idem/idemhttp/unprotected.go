package idemhttp

import (
	"crypto/sha256"
	"errors"

	"github.com/idem-go/idempotency/idem"
)

// Unprotected is for [Routes]: requests of the route are passed to the handler as without the contract,
// whether they have a key or not. Nothing of them is recorded, and a request that is sent again runs
// again. It is no operation: executing it is an error.
//
//	routes := idemhttp.Routes{"POST /payments": Charge, "POST /login": idemhttp.Unprotected}
//
// Of several routes that a path fits, the one that is literal for longest counts, as in API Gateway. A path that fits
// a protected route only in another spelling, such as decoded, is protected.
//
// Name each route: a template for all others, such as "POST /{rest...}" or "POST /hooks/", is refused, since
// it would also take a protected path that differs in another way, such as a doubled slash.
var Unprotected = idem.Operation{Values: unprotected{}}

// unprotected marks Unprotected. It is a [protocol.KeyedDigest], so that the engine refuses the operation
// with the reason.
type unprotected struct{}

func (unprotected) Check() error {
	return errors.New("idemhttp.Unprotected is only for the routes of a contract and cannot be executed: declare an " +
		"operation of your own")
}

func (unprotected) Digest(string) [sha256.Size]byte { return [sha256.Size]byte{} }
