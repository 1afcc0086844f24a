//! What k3s reads and an agent writes: its drop-ins as text (FILE-16), and the Secrets that it looks for, key by key
//! (FILE-17). Pure: a host writes the files and fills in what it opens.

use protocol::id::ClusterId;
use protocol::pbx::enroll::BootstrapSecrets;
use protocol::pbx::sync::IngressMode;
use protocol::seal::Sealed;

use super::addon::object::MANAGED_LABEL;
use super::task::DropIns;

/// A drop-in: a file of k3s's configuration folder, as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropIn {
    /// The file's name.
    pub name: &'static str,
    /// Its content, YAML.
    pub content: String,
}

impl DropIns {
    /// The drop-ins that are to be there with this content. One that is not among them stays as it is: that of an ingress
    /// mode that nobody knows (WIRE-5).
    pub fn files(&self) -> Vec<DropIn> {
        // A text in JSON's quotes is one in YAML, whatever is in it.
        let schedule = serde_json::Value::from(self.snapshot_schedule.as_str());
        let snapshots = DropIn {
            name: "50-pbx-snapshots.yaml",
            content: format!(
                "etcd-snapshot-schedule-cron: {schedule}\netcd-snapshot-retention: {}\n",
                self.snapshot_retention
            ),
        };
        let ingress = match &self.ingress_mode {
            Some(IngressMode::Bundled) => Some(""),
            Some(IngressMode::Addon) => Some("disable:\n- traefik\n- servicelb\n"),
            Some(IngressMode::Unknown(_)) | None => None,
        };
        let ingress = ingress.map(|content| DropIn {
            name: "50-pbx-ingress.yaml",
            content: content.to_owned(),
        });
        [snapshots].into_iter().chain(ingress).collect()
    }
}

/// A Secret of the namespace `kube-system`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretOf<'a> {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: &'static str,
    /// Its label (ADD-3).
    pub label: (&'static str, &'static str),
    /// Its keys, each with its value.
    pub keys: Vec<(&'static str, Value<'a>)>,
}

/// The value of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// As it is.
    Clear(&'a str),
    /// What the host finds in this box.
    Sealed(&'a Sealed),
}

/// The Secrets of a cluster (FILE-17). Neither is ever deleted (ADD-5).
pub fn secrets<'a>(cluster: &'a ClusterId, of: &'a BootstrapSecrets) -> [SecretOf<'a>; 2] {
    use Value::{Clear, Sealed};
    let s3 = &of.s3;
    [
        SecretOf {
            name: "hcloud",
            kind: "Opaque",
            label: MANAGED_LABEL,
            keys: vec![
                ("token", Sealed(&of.hcloud_token)),
                ("network", Clear(cluster.as_str())),
            ],
        },
        SecretOf {
            name: "pbx-etcd-s3",
            kind: "etcd.k3s.cattle.io/s3-config-secret",
            label: MANAGED_LABEL,
            keys: vec![
                ("etcd-s3-endpoint", Clear(&s3.endpoint)),
                ("etcd-s3-region", Clear(&s3.region)),
                ("etcd-s3-bucket", Clear(&s3.bucket)),
                ("etcd-s3-folder", Clear(&s3.folder)),
                ("etcd-s3-access-key", Sealed(&s3.access_key)),
                ("etcd-s3-secret-key", Sealed(&s3.secret_key)),
            ],
        },
    ]
}

#[cfg(test)]
mod tests {
    use protocol::pbx::enroll::S3Access;

    use super::*;

    // rule FILE-16
    #[test]
    fn the_drop_ins_of_each_ingress_mode() {
        let mode = |mode| DropIns {
            snapshot_schedule: "0 */6 * * *".to_owned(),
            snapshot_retention: 14,
            ingress_mode: mode,
        };
        let snapshots =
            "etcd-snapshot-schedule-cron: \"0 */6 * * *\"\netcd-snapshot-retention: 14\n";
        for (ingress, content) in [
            (Some(IngressMode::Bundled), Some("")),
            (
                Some(IngressMode::Addon),
                Some("disable:\n- traefik\n- servicelb\n"),
            ),
            (Some(IngressMode::Unknown("other".to_owned())), None),
            (None, None),
        ] {
            let files = mode(ingress).files();
            let files: Vec<_> = files.iter().map(|it| (it.name, &*it.content)).collect();
            let mut expected = vec![("50-pbx-snapshots.yaml", snapshots)];
            expected.extend(content.map(|content| ("50-pbx-ingress.yaml", content)));
            assert_eq!(files, expected);
        }
    }

    // rule FILE-16
    #[test]
    fn a_schedule_cannot_leave_its_line() {
        let drop_ins = DropIns {
            snapshot_schedule: "@daily\"\ndisable: [\"coredns".to_owned(),
            snapshot_retention: 1,
            ingress_mode: None,
        };
        assert_eq!(
            drop_ins.files()[0].content.lines().collect::<Vec<_>>(),
            [
                r#"etcd-snapshot-schedule-cron: "@daily\"\ndisable: [\"coredns""#,
                "etcd-snapshot-retention: 1",
            ]
        );
    }

    // rule FILE-17
    #[test]
    fn the_secrets_have_the_keys_that_k3s_looks_for_and_are_sealed_where_they_should_be() {
        let a_box = |byte| Sealed::from_bytes(vec![byte; 64]);
        let of = BootstrapSecrets {
            hcloud_token: a_box(1),
            s3: S3Access {
                endpoint: "https://fsn1.example".to_owned(),
                region: "fsn1".to_owned(),
                bucket: "b".to_owned(),
                folder: "clu_1".to_owned(),
                access_key: a_box(2),
                secret_key: a_box(3),
            },
        };
        let cluster: ClusterId = "clu_1".parse().unwrap();
        let [hcloud, s3] = secrets(&cluster, &of);
        assert_eq!((hcloud.name, hcloud.kind), ("hcloud", "Opaque"));
        // rule ADD-3
        let managed = ("pbx.io/managed", "true");
        assert_eq!([hcloud.label, s3.label], [managed, managed]);
        assert_eq!(
            hcloud.keys,
            [
                ("token", Value::Sealed(&of.hcloud_token)),
                ("network", Value::Clear("clu_1")),
            ]
        );
        assert_eq!(
            (s3.name, s3.kind),
            ("pbx-etcd-s3", "etcd.k3s.cattle.io/s3-config-secret")
        );
        let keys: Vec<_> = s3.keys.iter().map(|(key, _)| *key).collect();
        assert_eq!(
            keys,
            [
                "etcd-s3-endpoint",
                "etcd-s3-region",
                "etcd-s3-bucket",
                "etcd-s3-folder",
                "etcd-s3-access-key",
                "etcd-s3-secret-key",
            ]
        );
        let boxes = s3
            .keys
            .iter()
            .filter(|(key, value)| key.ends_with("-key") != matches!(value, Value::Sealed(_)));
        assert_eq!(boxes.count(), 0);
    }
}
