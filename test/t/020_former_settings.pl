# A server of version 1.0 that is upgraded, whose configuration still has settings that are gone.

use strict;
use warnings;

use ZklockTest;

# Version 1.0 could have several ZooKeeper sessions, each with a file.
my %gone = ('zklock.sessions' => 3, 'zklock.sasl_user' => 'zklock', 'zklock.sasl_password_file' => 'password');

my $zk = ZooKeeper->new;
my $node = ZklockNode->initialized('a', $zk, 'zklock.session_timeout' => '30s', %gone);
my $directory = $node->data_dir . '/pg_stat_tmp';
my @files = map { ("$directory/zklock.session.$_", "$directory/zklock.session.$_.new") } 2, 3;
append_to_file($_, "zklock session 1\n") foreach @files;
append_to_file("$directory/theirs", "kept\n");

$node->start;
like(slurp_file($node->logfile), qr/WARNING:  .*"\Q$_\E"/, "$_: a WARNING") foreach sort keys %gone;
$node->safe_psql('postgres', 'CREATE EXTENSION zklock');
$node->wait_until_connected;
is($node->safe_psql('postgres', q{SELECT session, state IN ('connected', 'idle'), safe FROM zk_sessions}), '1|t|t', 'the server has one session');
is(join(' ', grep { -e } @files), '', 'the files of other sessions are removed');
ok(-e "$directory/zklock.session" && -e "$directory/theirs", 'and no others');
is($node->safe_psql('postgres', try('/x')), 't', 'a lock is acquired');

# A reload takes what is known.
$node->configure('zklock.linger' => '7s');
$node->reload;
$node->wait_until(q{SELECT current_setting('zklock.linger') = '7s'});
pass('other settings are reloaded');
is($node->safe_psql('postgres', try('/y')), 't', 'and a lock is acquired');

my $session = $node->status('session_id');
$node->stop;
$zk->wait_until(sub { !$zk->has_session($session) }, 'the session to be gone');
is(join(' ', glob "$directory/zklock.session*"), '', 'a stop closes the session');

done_testing();
