//! The repository with the loops of a fleet.

use super::Harbor;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

impl Harbor {
    pub fn repository(&self) -> PathBuf {
        self.dir.path().join("repo.git")
    }

    /// Makes a bare repository. The argument of its agent is a number of tenths of a second: the agent makes a mark in each of
    /// them.
    pub(super) fn make_repository(&self) {
        let tree = self.dir.path().join("tree");
        std::fs::create_dir_all(tree.join("work")).expect("a directory");
        let script = format!(
            "job=$(basename \"$(dirname \"$PWD\")\")\n\
             mark() {{ echo \"$1 $job $$\" >>'{}'; }}\n\
             mark start\ni=0\n\
             while [ $i -lt $1 ]; do mark tick; sleep 0.1; i=$((i+1)); done\n\
             echo done >>result.txt\nmark end\n",
            self.marks_file().display()
        );
        std::fs::write(tree.join("work/agent.sh"), script).expect("written");
        for steps in ["5", "60", "200"] {
            self.add_loop(&format!("s{steps}"), &format!("agent: sh work/agent.sh {steps}"));
        }
        git(&tree, &["init", "--quiet", "-b", "main"]);
        git(self.dir.path(), &["init", "--quiet", "--bare", "-b", "main", "repo.git"]);
        self.push_loops();
    }

    /// Adds a loop to the repository, with this frontmatter. Call `push_loops` after it.
    pub fn add_loop(&self, name: &str, front: &str) {
        let dir = self.dir.path().join("tree").join(name);
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::write(dir.join("RALPH.md"), format!("---\n{front}\n---\nWork.\n")).expect("written");
    }

    /// Adds a loop whose agent is a shell script.
    pub fn add_script(&self, name: &str, front: &str, script: &str) {
        self.add_loop(name, &format!("agent: sh {name}/agent.sh\n{front}"));
        std::fs::write(self.dir.path().join("tree").join(name).join("agent.sh"), script).expect("written");
        self.push_loops();
    }

    /// Commits the loops and pushes them.
    pub fn push_loops(&self) {
        let tree = self.dir.path().join("tree");
        git(&tree, &["add", "."]);
        git(&tree, &["commit", "--quiet", "-m", "loops"]);
        git(&tree, &["push", "--quiet", "../repo.git", "main"]);
    }

    pub fn head(&self) -> String {
        git(&self.repository(), &["rev-parse", "main"]).trim().to_owned()
    }

    /// Makes the repository refuse every push, or accept them again.
    pub fn refuse_pushes(&self, refuse: bool) {
        let hook = self.repository().join("hooks/pre-receive");
        std::fs::write(&hook, format!("#!/bin/sh\nexit {}\n", i32::from(refuse))).expect("written");
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("a hook");
    }
}

pub fn git(dir: &Path, args: &[&str]) -> String {
    let out = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@localhost"])
        .args(args)
        .current_dir(dir)
        .output()
        .expect("git runs");
    assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}
