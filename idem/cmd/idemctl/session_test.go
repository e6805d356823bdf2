package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The endpoint of a VPC is one of AWS: who changes a record there is not who they say they are on
// their machine.
func TestChangesAreOfTheAWSCallerUnlessTheTableIsLocal(t *testing.T) {
	const arn = "arn:aws:sts::111122223333:assumed-role/operator/alice"
	var signed atomic.Value
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signed.Store(r.Header.Get("Authorization"))
		fmt.Fprintf(w, `<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>%s</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>`, arn)
	}))
	defer sts.Close()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "credentials"), []byte("[production]\naws_access_key_id = PROFILE\naws_secret_access_key = x\n"), 0o600))
	const vpc, local = "https://vpce-1-dynamodb.eu-central-1.vpce.amazonaws.com", "http://127.0.0.1:8000"
	for name, c := range map[string]struct {
		endpoint, flag, profile, keys string
		who, signer                   string
	}{
		"a VPC, by AWS_PROFILE":           {vpc, "", "production", "", arn, "PROFILE"},
		"a VPC, by --profile":             {vpc, "production", "", "", arn, "PROFILE"},
		"a VPC, by keys":                  {vpc, "", "", "KEYS", arn, "KEYS"},
		"no endpoint":                     {"", "", "", "KEYS", arn, "KEYS"},
		"a proxy, by keys":                {"http://dynamodb.internal", "", "", "KEYS", arn, "KEYS"},
		"this machine, by AWS_PROFILE":    {local, "", "production", "", arn, "PROFILE"},
		"this machine, by keys":           {local, "", "", "KEYS", "carol", ""},
		"this machine, without keys":      {local, "", "", "", "carol", ""},
		"another machine, without keys":   {"http://dynamodb:8000", "", "", "", "carol", ""},
		"this machine, by its other name": {"http://localhost:8000", "", "", "KEYS", "carol", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, unset := range []string{"AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_PROFILE"} {
				t.Setenv(unset, "")
			}
			for variable, value := range map[string]string{
				"AWS_ENDPOINT_URL_STS": sts.URL, "AWS_SHARED_CREDENTIALS_FILE": filepath.Join(dir, "credentials"), "AWS_CONFIG_FILE": filepath.Join(dir, "config"),
				"AWS_REGION": "eu-central-1", "USER": "carol", "AWS_PROFILE": c.profile, "AWS_ACCESS_KEY_ID": c.keys,
			} {
				t.Setenv(variable, value)
			}
			if c.keys != "" {
				t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
			}
			signed.Store("")
			b, err := connect(t.Context(), Globals{Table: "payments", Endpoint: c.endpoint, Profile: c.flag}, &serverClock{local: time.Now})
			require.NoError(t, err)
			require.Equal(t, c.who, b.caller(t.Context()))
			signature := signed.Load().(string)
			require.Equal(t, c.signer != "", strings.Contains(signature, "Credential="+c.signer+"/"), signature)
		})
	}
}
