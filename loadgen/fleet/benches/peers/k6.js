// The peer k6: each virtual user posts the file that PEER_BODY names to PEER_URL, again and again.
import http from "k6/http";

export const options = { insecureSkipTLSVerify: true };

const body = open(__ENV.PEER_BODY);
const headers = { "Content-Type": "application/json", Accept: "application/json" };

export default function () {
  http.post(__ENV.PEER_URL, body, { headers });
}
