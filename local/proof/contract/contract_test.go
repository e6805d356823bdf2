package contract

import (
	"testing"

	"github.com/idem-go/idempotency/idem/idemhttp"
)

// Every row of the contract, in both profiles, through a real client, every gateway and
// a real process.
func TestContract(t *testing.T) {
	l := newFixture(t)
	for _, k := range kinds {
		for profile := range markers {
			if k.onlyIETF && profile != idemhttp.IETF {
				continue
			}
			t.Run(k.name+"/"+profiles[profile], func(t *testing.T) {
				t.Parallel()
				s := newService(t, l, k, profile)
				for name, exchange := range exchanges {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						exchange(t, s)
					})
				}
				for _, r := range rows() {
					if r.unless != nil && r.unless(k, profile) {
						continue
					}
					t.Run(r.name, func(t *testing.T) {
						t.Parallel()
						r.test(t, s)
					})
				}
			})
		}
	}
}

// exchanges are the rows that need more than a request that is sent twice.
var exchanges = map[string]func(*testing.T, *service){
	"in flight":                inFlight,
	"in flight, waiting":       inFlightWaiting,
	"the gateway gives up":     gatewayGivesUp,
	"the client goes away":     clientGoesAway,
	"killed":                   killed,
	"killed, repeatable":       killedRepeatable,
	"killed in a step":         killedInStep,
	"hanging":                  hanging,
	"no token":                 noToken,
	"too large to keep":        tooLargeToKeep,
	"another response version": anotherVersion,
	"record damaged":           recordDamaged,
	"record newer":             recordNewer,
	"accepted for later":       acceptedForLater,
	"expired":                  expired,
	"store away":               storeAway,
	"byte for byte":            byteForByte,
}
