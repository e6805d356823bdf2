package idemhttp_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
)

// webhook fulfils each paid order once. It verifies the signature before the event's id, which is a part of
// what is signed, becomes a key: a forged event with the id of a real one must not take that.
func webhook(engine *idem.Engine, secret []byte, fulfil func(ctx context.Context, order string) (string, error),
) http.HandlerFunc {
	op := idem.Operation{Name: "fulfil", Repeat: idem.Repeatable, Watch: idem.WatchAlways,
		Retention: 31 * 24 * time.Hour} // Stripe sends an event again for 3 days, and by hand for 30
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
		if err != nil || !signed(body, r.Header.Values("Stripe-Signature"), secret) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		var event struct {
			ID   string
			Data struct{ Object struct{ Order string } }
		}
		if err := json.Unmarshal(body, &event); err != nil || event.ID == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		// The input is what the work needs: Stripe changes pending_webhooks in the event between deliveries.
		key := op.Key(idem.SingleTenant, event.ID)
		done, err := idem.Run(r.Context(), engine, key, event.Data.Object.Order, fulfil)
		if err != nil && done.Outcome.RecordState != idem.Failed { // each further delivery gets a recorded failure again
			w.WriteHeader(http.StatusInternalServerError) // Stripe sends the event again
			return
		}
		w.WriteHeader(http.StatusOK) // aws-lambda-go-api-proxy wants a status
	}
}

// signed verifies Stripe's scheme: t=seconds,v1=HMAC-SHA256 of "seconds.body", at most five minutes old. While a
// secret is replaced there are two v1, and a test event has a v0. Some adapters part a header at its commas.
// https://docs.stripe.com/webhooks#verify-manually
func signed(body []byte, header []string, secret []byte) bool {
	var stamp string
	var at int64
	var given [][]byte
	for part := range strings.SplitSeq(strings.Join(header, ","), ",") {
		switch name, value, _ := strings.Cut(strings.TrimSpace(part), "="); name {
		case "t":
			stamp = value
			at, _ = strconv.ParseInt(value, 10, 64) // zero is too old
		case "v1":
			sum, _ := hex.DecodeString(value)
			given = append(given, sum)
		}
	}
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s", stamp, body)
	want := mac.Sum(nil)
	return time.Since(time.Unix(at, 0)).Abs() < 5*time.Minute &&
		slices.ContainsFunc(given, func(sum []byte) bool { return hmac.Equal(sum, want) })
}

func Example_webhook() {
	now := time.Now()
	engine, err := idem.New(memstore.New(), &idem.Options{Now: func() time.Time { return now }})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := webhook(engine, []byte("whsec_1"), func(_ context.Context, order string) (string, error) {
		fmt.Println("fulfil", order)
		if order == "o-8" {
			return "", idem.Permanent(errors.New("the order is cancelled"))
		}
		return "shipment of " + order, nil
	})
	deliver := func(secret, event, order string, pending int) {
		body := fmt.Sprintf(`{"id":%q,"data":{"object":{"order":%q}},"pending_webhooks":%d}`, event, order, pending)
		at := time.Now().Unix()
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "%d.%s", at, body)
		r := httptest.NewRequest("POST", "/stripe", strings.NewReader(body))
		r.Header.Set("Stripe-Signature", fmt.Sprintf("t=%d,v1=%x", at, mac.Sum(nil)))
		if order == "o-8" { // while the secret is replaced, behind an adapter that parts headers
			r.Header["Stripe-Signature"] = []string{fmt.Sprintf("t=%d", at), "v1=00", fmt.Sprintf("v1=%x", mac.Sum(nil)),
				"v0=00"}
		}
		w := httptest.NewRecorder()
		h(w, r)
		fmt.Println(event, w.Code)
	}
	deliver("forged", "evt_1", "o-7", 2)
	deliver("whsec_1", "evt_1", "o-7", 2)
	deliver("whsec_1", "evt_2", "o-8", 1)
	now = now.Add(30 * 24 * time.Hour)
	deliver("whsec_1", "evt_1", "o-7", 1)
	deliver("whsec_1", "evt_2", "o-8", 1)
	// Output:
	// evt_1 400
	// fulfil o-7
	// evt_1 200
	// fulfil o-8
	// evt_2 200
	// evt_1 200
	// evt_2 200
}
