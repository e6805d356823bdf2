package readme

import (
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemhttp/coverage"
)

var routes = idemhttp.Routes{"POST /payments": {Name: "charge", Repeat: idem.Repeatable}}

func TestEveryRouteIsProtected(t *testing.T) {
	coverage.Require(t, routes, "openapi.yaml")
}
