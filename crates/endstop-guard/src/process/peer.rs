//! The user whose program is at the other end of a connection on this machine.
//!
//! The system lists its TCP connections with the user who opened each. Only Linux has this list in a
//! file; on other systems the user is not checked.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// Lists of connections. A program may use an IPv6 socket for an IPv4 address.
const LISTS: [&str; 2] = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];

/// Number of times that the lists are read before a connection counts as unknown. They are read
/// in parts, so a row that moves meanwhile can be missed.
const TRIES: usize = 4;

/// The reason why a connection does not count as one of this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PeerError {
    /// The connection belongs to another user.
    #[error("another user of this machine has opened this connection")]
    OtherUser,
    /// The list does not have it: the other end was closed, or is not on this machine.
    #[error("the user of this connection is not visible, as for a program in a container")]
    Unknown,
}

/// Checks that a program of this user, or of root, has opened a connection from `peer` to `local`. Without
/// a list of connections, as on other systems than Linux, the user is not checked.
///
/// # Errors
/// The connection belongs to another user, or its user is not known.
pub(crate) fn check_user(peer: SocketAddr, local: SocketAddr) -> Result<(), PeerError> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    // The lists have the other end of the connection, too, which is this process.
    match (user_of(peer, local), user_of(local, peer)) {
        (Some(0), _) => Ok(()),
        (Some(user), Some(own)) if user == own => Ok(()),
        (Some(_), Some(_)) => Err(PeerError::OtherUser),
        (None, _) | (_, None) => Err(PeerError::Unknown),
    }
}

/// A socket in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    user: u32,
    /// The file of the socket; 0 once its program has closed it.
    inode: u64,
}

/// Returns the user of the socket whose own address is `end`, and whose other end is `other`.
fn user_of(end: SocketAddr, other: SocketAddr) -> Option<u32> {
    let (end, other) = (canonical(end), canonical(other));
    let read =
        || LISTS.iter().find_map(|list| find(&std::fs::read_to_string(list).ok()?, end, other));
    owner((0..TRIES).map(|_| read()))
}

/// Returns the user of a socket that was read several times.
///
/// A socket that its program has closed is listed as root's, with the inode 0. The two columns
/// are read one after the other, so root is the user only if a later reading shows that the
/// socket was open until then.
fn owner(readings: impl Iterator<Item = Option<Row>>) -> Option<u32> {
    let mut before = None;
    for row in readings {
        let row = row.filter(|row| row.inode != 0);
        match row {
            Some(row) if row.user != 0 || before == Some(row) => return Some(row.user),
            _ => before = row,
        }
    }
    None
}

/// Returns the row of the socket with these ends.
fn find(list: &str, end: SocketAddr, other: SocketAddr) -> Option<Row> {
    let v6 = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    };
    let ends = |end, other| format!(" {} {} ", hex(end), hex(other));
    let places = [ends(end, other), ends(v6(end), v6(other))];
    let rest = places.iter().find_map(|ends| Some(&list[list.find(ends)? + ends.len()..]))?;
    // State, queues, timer, retransmissions; then the user, a counter, and the inode.
    let mut columns = rest.lines().next()?.split_ascii_whitespace().skip(4);
    let user = columns.next()?.parse().ok()?;
    Some(Row { user, inode: columns.nth(1)?.parse().ok()? })
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Returns an address as the lists have it: words of four bytes in the order of this machine.
fn hex(address: SocketAddr) -> String {
    let mut text = String::new();
    let mut word = |bytes: [u8; 4]| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{:08X}", u32::from_ne_bytes(bytes));
    };
    match address.ip() {
        IpAddr::V4(ip) => word(ip.octets()),
        IpAddr::V6(ip) => ip.octets().as_chunks().0.iter().for_each(|bytes| word(*bytes)),
    }
    let _ = write!(text, ":{:04X}", address.port());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// As Linux prints it on a machine that is little-endian.
    const LIST: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
        \x20  0: 0100007F:0FA0 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1060 1 00000000e93c7fc8 100 0 0 10 0\n\
        \x20  1: 0100007F:0FA0 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 2001 1 0000000000000000 20 4 30 10 -1\n\
        \x20  2: 0100007F:C001 0100007F:0FA0 01 00000000:00000000 00:00000000 00000000 65534        0 2002 1 0000000000000000 20 4 30 10 -1\n\
        \x20  3: 0100007F:C002 0100007F:0FA0 06 00000000:00000000 03:00000A2F 00000000     0        0 0 3 0000000000000000\n";
    const LIST6: &str = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
        \x20  0: 0000000000000000FFFF00000100007F:C003 0000000000000000FFFF00000100007F:0FA0 01 00000000:00000000 00:00000000 00000000  1000        0 2003 1 0 20 4 30 10 -1\n\
        \x20  1: 00000000000000000000000001000000:C004 00000000000000000000000001000000:0FA0 01 00000000:00000000 00:00000000 00000000  1001        0 2004 1 0 20 4 30 10 -1\n";

    #[test]
    #[cfg(target_endian = "little")]
    fn socket_of_the_client_is_found() {
        let at = |list, peer: &str, local: &str| {
            find(list, peer.parse().unwrap(), local.parse().unwrap()).map(|row| row.user)
        };
        let (v4, v6) = ("127.0.0.1:4000", "[::1]:4000");
        assert_eq!(at(LIST, "127.0.0.1:49153", v4), Some(65_534), "not the server's own socket");
        assert_eq!(at(LIST6, "127.0.0.1:49155", v4), Some(1000), "an IPv6 socket for IPv4");
        assert_eq!(at(LIST6, "[::1]:49156", v6), Some(1001));
        for (peer, local) in [
            ("127.0.0.1:49153", "127.0.0.1:4001"),
            ("127.0.0.1:4000", "127.0.0.1:49154"),
            ("127.0.0.2:49153", v4),
            ("[::1]:49153", v6),
        ] {
            assert_eq!(at(LIST, peer, local), None, "{peer} {local}");
        }
        let closed = find(LIST, "127.0.0.1:49154".parse().unwrap(), v4.parse().unwrap());
        assert_eq!(closed, Some(Row { user: 0, inode: 0 }));
        for damaged in ["", "x", &LIST[..LIST.len() - 40], " 0100007F:C002 0100007F:0FA0 06"] {
            let row = find(damaged, "127.0.0.1:49154".parse().unwrap(), v4.parse().unwrap());
            assert_eq!(row, None, "{damaged}");
        }
    }

    #[test]
    fn closed_socket_is_not_root() {
        let row = |user, inode| Some(Row { user, inode });
        for (readings, expected) in [
            (vec![row(1000, 7)], Some(1000)),
            // Root needs two equal readings.
            (vec![row(0, 7), row(0, 7)], Some(0)),
            (vec![row(0, 7)], None),
            (vec![row(0, 0), row(0, 0), row(0, 0)], None),
            // Closed between the two columns of the first reading, or just after it.
            (vec![row(0, 7), row(0, 0), row(0, 0)], None),
            (vec![row(0, 7), None, None], None),
            (vec![row(0, 7), row(0, 8)], None),
            (vec![None, row(1000, 7)], Some(1000)),
            (vec![row(0, 7), row(1000, 7)], Some(1000)),
            (vec![], None),
        ] {
            assert_eq!(owner(readings.clone().into_iter()), expected, "{readings:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn own_connections_are_this_users() {
        let own =
            std::os::unix::fs::MetadataExt::uid(&tempfile::tempfile().unwrap().metadata().unwrap());
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A machine may have no IPv6.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let local = listener.local_addr().unwrap();
            let client = TcpStream::connect(local).unwrap();
            let (server, peer) = listener.accept().unwrap();
            assert_eq!(user_of(peer, local), Some(own), "{address}");
            assert_eq!(check_user(peer, local), Ok(()));
            // Half closed, it still has its file; closed, it has none.
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(user_of(peer, local), Some(own), "{address}");
            drop(client);
            assert_eq!(check_user(peer, local), Err(PeerError::Unknown), "{address}");
            drop(server);
        }
    }
}
