package cloud

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// bootstrapVersion is at least what the templates ask for.
const bootstrapVersion = "30"

func (s *Server) sts(w http.ResponseWriter, form url.Values) {
	switch action := form.Get("Action"); action {
	case "GetCallerIdentity":
		answer(w, action, tag("Account", s.Account), tag("UserId", "AIDALOCAL"),
			tag("Arn", "arn:aws:iam::"+s.Account+":user/tester"))
	case "AssumeRole":
		role, session := form.Get("RoleArn"), form.Get("RoleSessionName")
		if !strings.HasPrefix(role, "arn:aws:iam::"+s.Account+":role/cdk-") {
			fail(w, "AccessDenied", "no role "+role)
			return
		}
		answer(w, action,
			group("Credentials", tag("AccessKeyId", "ASIALOCALLOCALLOCAL1"), tag("SecretAccessKey", "secret"),
				tag("SessionToken", "token"), tag("Expiration", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))),
			group("AssumedRoleUser", tag("AssumedRoleId", "AROALOCAL:"+session), tag("Arn", role+"/"+session)))
	default:
		s.refuse(w, "sts:"+action)
	}
}

func (s *Server) ssm(w http.ResponseWriter, r *http.Request, target string) {
	service, action, _ := strings.Cut(target, ".")
	if service != "AmazonSSM" || action != "GetParameter" {
		s.refuse(w, target)
		return
	}
	s.called("ssm:" + action)
	var in struct{ Name string }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	value, ok := parameters[in.Name]
	if !ok {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"__type": "ParameterNotFound", "message": in.Name})
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"Parameter": map[string]any{"Name": in.Name, "Type": "String",
		"Value": value, "Version": 1}})
}

// parameters of the account, as the bootstrap stack leaves them.
var parameters = map[string]string{"/cdk-bootstrap/hnb659fds/version": bootstrapVersion}
