
# zklock.commit_requires: what may come between the guard and the commit record, and between the lock
# and the record of histories.  Needs servers with fault points (make FAULTS=1).

use strict;
use warnings;

use PgWire;
use ZklockTest;

my $path = '/leaders/primary';
my $record = '/zklock/.zklock/leaders/leaders%2Fprimary';
my $zk = ZooKeeper->new;
my %settings = ('zklock.leader_of' => $path, 'max_prepared_transactions' => 10);
my $north = ZklockNode->started('north', $zk, %settings, 'zklock.session_timeout' => '5s', 'restart_after_crash' => 'on',
	init => [ allows_streaming => 1 ]);
$north->safe_psql('postgres', 'CREATE TABLE t (v text)');
$north->wait_until("SELECT zk_is_leader('$path')");

# Another server with the same history, for the record: a standby that is promoted at the end.
my $south = ZklockNode->standby('south', $north, 'zklock.session_timeout' => '20s', 'zklock.leader_of' => '');
my $stands = $south->backend;

sub leads { my ($node) = @_; return $node->safe_psql('postgres', "SELECT zk_is_leader('$path')"); }
sub wait_until_leads { my ($node) = @_; return $node->wait_until("SELECT zk_is_leader('$path')"); }
sub resign { my ($node, $pause) = @_; return $node->safe_psql('postgres', "SELECT zk_leader_resign('$path', '" . ($pause // '0') . "')"); }
sub late { return $north->safe_psql('postgres', 'SELECT late_commits FROM zk_stat'); }
sub rows { my ($v) = @_; return $north->safe_psql('postgres', "SELECT count(*) FROM t WHERE v = '$v'"); }
sub wire { return PgWire->new($north->host, $north->port, 'wire', patience => 120); }

$north->set('zklock.commit_requires', $path);
wait_until_leads($north);

# --- a commit that has passed the guard ---

# The messages of both protocols.
sub frames { return join '', map { my ($type, $body) = @$_; pack('aN', $type, length($body) + 4) . $body } @_; }
sub simple { my ($sql) = @_; return frames([ Q => "$sql\0" ]); }
sub extended { my ($sql) = @_; return frames([ P => pack('Z*Z*n', '', $sql, 0) ], [ B => pack('Z*Z*nnn', '', '', 0, 0, 0) ], [ E => pack('Z*N', '', 0) ], [ S => '' ]); }

my @commits = (
	[ 'simple protocol', 'guard-passed', undef, simple(q{INSERT INTO t VALUES ('simple protocol')}), 1 ],
	[ 'extended protocol', 'guard-passed', undef, extended(q{INSERT INTO t VALUES ('extended protocol')}), 1 ],
	[ 'COMMIT', 'guard-passed', q{BEGIN; INSERT INTO t VALUES ('COMMIT')}, simple('COMMIT'), 1 ],
	[ 'COMMIT, extended', 'guard-passed', q{BEGIN; INSERT INTO t VALUES ('COMMIT, extended')}, extended('COMMIT'), 1 ],
	[ 'procedure', 'guard-passed', undef, simple(q{DO $$ BEGIN INSERT INTO t VALUES ('procedure'); COMMIT; INSERT INTO t VALUES ('second'); COMMIT; END $$}), 1 ],
	[ 'PREPARE TRANSACTION', 'prepare-guarded', q{BEGIN; INSERT INTO t VALUES ('prepared')}, simple(q{PREPARE TRANSACTION 'p'}), 0 ],
	[ 'COMMIT PREPARED', 'prepared-guarded', undef, simple(q{COMMIT PREPARED 'p'}), 0 ]);

# It is taken away while the commit stands still: what has passed the guard is late, and is not acknowledged.
foreach (@commits)
{
	my ($what, $point, $before, $message, $counts) = @$_;
	wait_until_leads($north);
	my $client = wire();
	is($client->query($before)->{error}, '', "$what: before") if $before;
	my ($at, $late) = (-s $north->logfile, late());
	$north->arm($point);
	syswrite $client->{socket}, $message;
	my $process = $north->at_point($point);
	$north->expire_session($zk);
	wait_until_leads($north);
	kill 'CONT', $process;
	my $result = $client->_answer;
	is($result->{error}, 'lost', "$what: the connection ends without an acknowledgement");
	is($result->{tag}, '', "$what: not even of the command") unless $what eq 'extended protocol';
	is($result->{status}, 'I', "$what: nor is it ready for another");
	like(slurp_file($north->logfile, $at), qr/committed \S+ ms after lock "$path" was last certain/, "$what: the log has it");
	is(late() - $late, 1, "$what: it is counted");
	is(rows($what), '1', "$what: it has committed") if $counts;
	is(rows('second'), '0', "$what: and nothing after that");
}
is(rows('prepared'), '1', 'what was prepared has committed');

# It is certain all the time: a slow commit is acknowledged.
{
	my $client = wire();
	$north->arm('guard-passed');
	syswrite $client->{socket}, simple(q{INSERT INTO t VALUES ('slow')});
	my $process = $north->at_point('guard-passed');
	my $until = $north->safe_psql('postgres', 'SELECT safe_until FROM zk_status');
	$north->wait_until("SELECT safe_until > '$until'::timestamptz + interval '1 s' FROM zk_status");
	kill 'CONT', $process;
	my $result = $client->_answer;
	is("$result->{error}|$result->{tag}", '|INSERT 0 1', 'a slow commit of a server that leads on is acknowledged');
}

# A resignation waits for it, as long as the server can count on the leadership.
$north->set_session_timeout($zk, '20s');
foreach (@commits)
{
	my ($what, $point, $before, $message) = @$_;
	next if $what eq 'procedure';
	wait_until_leads($north);
	my ($client, $asks) = (wire(), $north->backend);
	$before =~ s/'[^']*'/'waited'/ if $before;
	is($client->query($before)->{error}, '', "$what: before") if $before;
	my ($ticket) = @{ $zk->children("/zklock$path") };
	$north->arm($point);
	syswrite $client->{socket}, $message;
	my $process = $north->at_point($point);
	$asks->send("SELECT zk_leader_resign('$path')");
	$north->wait_until("SELECT NOT zk_is_leader('$path')");
	my $others = wire();
	is($others->query(q{INSERT INTO t VALUES ('overtakes')})->{error}, '25006', "$what, resigned: no other commit passes");
	ok((grep { $_ eq $ticket } @{ $zk->children("/zklock$path") }) && !$asks->is_done, "$what, resigned: the lock is not free before it has ended");
	kill 'CONT', $process;
	my $result = $client->_answer;
	is($result->{error}, '', "$what, resigned: it is acknowledged");
	is($asks->answer, 't', "$what, resigned: and only then the resignation is done");
	$_->close foreach $client, $others;
	$asks->quit;
}
$north->set_session_timeout($zk, '5s');

# --- the record ---

# The claims process stands still between the look and the file, or between the file and the record.
sub text { return $zk->get($record)->{data}; }
foreach my $point ('history-answered', 'history-filed')
{
	wait_until_leads($north);
	resign($north, '1 hour');
	my $at = -s $north->logfile;
	$north->arm($point);
	resign($north);
	my $process = $north->at_point($point);
	is(leads($north), 'f', "$point: it does not lead yet");
	is($north->errcode(q{INSERT INTO t VALUES ('too early')}), '25006', "$point: and does not commit");
	my $other = 'zklock history 1 1 7 0/1 ' . 'a' x 32 . ' leads elsewhere';
	$zk->set($record, $other);
	kill 'CONT', $process;
	$north->wait_for_log(qr/this server must not lead/, $at);
	is(text(), $other, "$point: what another server has written stays");
	is(leads($north), 'f', "$point: and it does not lead");
	like($north->status('refused_leaderships'), qr/Server "elsewhere" led last, which has another database system identifier/, "$point: why");
	$north->safe_psql('postgres', "SELECT zk_leader_forget('$path')");
}

# Something fails or dies when a leadership begins or ends: before the file, between the file and the
# record, and when the record was written but the reply is not there.  The token in the record is
# always one that the server has.
foreach my $when ('begins', 'ends')
{
	foreach ([ 'history-answered', 'fail' ], [ 'history-answered', 'die' ], [ 'history-filed', 'fail' ], [ 'history-filed', 'die' ],
		[ 'history-answered', 'die', 1 ], [ 'command-answered', 'fail', 1 ], [ 'command-answered', 'die', 1 ])
	{
		my ($point, $action, $is_written) = @$_;
		my $what = "$point, $action, " . ($is_written ? 'written, ' : '') . "a leadership $when";
		wait_until_leads($north);
		resign($north, '1 hour') if $when eq 'begins';
		my $before = text();
		my $asks = $north->backend;
		$north->arm($is_written ? 'history-filed' : $point, $is_written ? 'stop' : $action);
		$asks->send("SELECT zk_leader_resign('$path')");
		if ($is_written)
		{
			my $process = $north->at_point('history-filed');
			$north->arm($point, $action);
			kill 'CONT', $process;
		}
		$north->at_point($point);
		$zk->wait_until(sub { eval { leads($north) eq 't' } }, 'it to lead again');
		is($north->errcode("INSERT INTO t VALUES ('again')"), '', "$what: leads again");
		isnt(text(), $before, "$what: with another token");
		eval { $asks->quit };
	}
}

# --- the setting comes while the server leads ---

# The guard has the answer at once, also while the process stands still that would look in ZooKeeper.
sub leads_unrequired
{
	$north->set('zklock.leader_of', '');
	$north->set('zklock.commit_requires', '');
	$zk->wait_for_children("/zklock$path", 0);
	return;
}
sub claims_pid { return $north->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'zklock claims'}); }
my $elsewhere = 'zklock history 1 1 7 0/1 ' . 'a' x 32 . ' leads elsewhere';
foreach my $may_lead ('may lead', 'must not lead')
{
	leads_unrequired();
	$may_lead eq 'may lead' ? $north->safe_psql('postgres', "SELECT zk_leader_forget('$path')") : $zk->set($record, $elsewhere);
	my $at = -s $north->logfile;
	$north->arm('history-answered');
	$north->set('zklock.leader_of', $path);
	my $process = $north->at_point('history-answered');
	wait_until_leads($north);
	pass("the setting comes, $may_lead: until then it leads, and looks at the history");
	is($north->errcode("INSERT INTO t VALUES ('$may_lead')"), '', "the setting comes, $may_lead: and commits");
	is($north->errcode("SET zklock.commit_requires = '$path'; INSERT INTO t VALUES ('unknown')"), '25006', "the setting comes, $may_lead: not before the answer");
	kill 'CONT', $process;
	$zk->wait_until(sub { $north->errcode("SET zklock.commit_requires = '$path'; INSERT INTO t VALUES ('known')") eq '' }, 'the guard to know')
	  if $may_lead eq 'may lead';
	is($north->status('refused_leaderships IS NULL'), 't', "the setting comes, $may_lead: nothing is refused yet");
	my $leader = claims_pid();
	kill 'STOP', $leader;
	ZklockNode::wait_until_still($leader);
	$north->set('zklock.commit_requires', $path);
	is($north->errcode("INSERT INTO t VALUES ('$may_lead')"), $may_lead eq 'may lead' ? '' : '25006', "the setting comes, $may_lead: while the process stands still");
	kill 'CONT', $leader;
	if ($may_lead eq 'may lead')
	{
		is(leads($north), 't', "the setting comes, $may_lead: leads on");
		like(text(), qr/ north$/, "the setting comes, $may_lead: the record has its history");
	}
	else
	{
		$north->wait_for_log(qr/this server must not lead/, $at);
		is(text(), $elsewhere, "the setting comes, $may_lead: the record stays");
		$north->safe_psql('postgres', "SELECT zk_leader_forget('$path')");
	}
	wait_until_leads($north);
	is($north->errcode(q{INSERT INTO t VALUES ('as before')}), '', "the setting comes, $may_lead: commits");
}

# --- an error ---

# What goes wrong with one leadership ends no other claim: the claims process has to write a file that it must
# not write.
{
	leads_unrequired();
	chmod 0500, $north->data_dir . '/pg_stat_tmp' or die "chmod: $!";
	my $b = $north->backend;
	my $held = q{SELECT count(*) FROM zk_claims WHERE state = 'held'};
	is($b->query(q{SELECT count(*) FROM generate_series(1, 100) AS i WHERE zk_claim_wait(zk_claim_request('/held/' || i, '1 h'), '1 min')}), '100', 'an error: 100 claims are held');
	my $process = claims_pid();
	my $at = -s $north->logfile;
	$north->set('zklock.leader_of', $path);
	$north->wait_for_log(qr/LOG: .*commits cannot require the leadership of "$path"\n.*could not write file/, $at);
	wait_until_leads($north);
	is($north->errcode(q{INSERT INTO t VALUES ('an error')}), '', 'an error of a look that is not required: leads, and commits');
	$north->set('zklock.commit_requires', $path);
	is($north->errcode(q{INSERT INTO t VALUES ('unknown')}), '25006', 'an error: does not commit what requires the leadership');
	$north->wait_for_log(qr/LOG: .*this server cannot stand for the leadership of "$path"\n.*could not write file/, $at);
	is($b->query($held), '100', 'an error: the claims are still held');
	is($b->query(q{SELECT zk_claim_wait(zk_claim_request('/held/another', '1 h'), '1 min')}), 't', 'an error: another one is granted');
	$north->wait_until("SELECT NOT zk_is_leader('$path')");
	unlike(slurp_file($north->logfile, $at), qr/ERROR: .*could not write file/, 'an error: it is none of the process');
	$north->safe_psql('postgres', "SELECT zk_leader_forget('$path')");		# its token is gone
	chmod 0700, $north->data_dir . '/pg_stat_tmp' or die "chmod: $!";
	wait_until_leads($north);
	is(claims_pid(), $process, 'an error: it leads when it can, with the same process');
	is($b->query($held), '101', 'an error: and has all claims');
	is(scalar(() = slurp_file($north->logfile, $at) =~ /cannot stand for the leadership/g), 1, 'an error: told once');
	is($b->query('SELECT count(zk_claim_release(claim)) FROM zk_claims'), '101', 'an error: they are released');
	$b->quit;
}

# The path is in use as another kind of lock, so no claim begins.  Later one does, and its history is looked at.
{
	leads_unrequired();
	my ($other, $before, $at) = ($north->backend, text(), -s $north->logfile);
	$other->query("SELECT zk_write_lock_acquire('$path')");
	$north->set('zklock.leader_of', $path);
	$north->wait_for_log(qr/LOG: .*this server cannot stand for the leadership of "$path"/, $at);
	$other->query("SELECT zk_write_lock_release('$path')");
	wait_until_leads($north);
	$zk->wait_until(sub { text() ne $before }, 'the record to have another token');
	pass('an error before the claim: when it leads, the history is looked at');
	$other->quit;
}

# --- a pause ---

# It is resigned for an hour while the process finds that its history must not lead.  A leadership that is refused
# later, and stands again after its own pause, shows that this one would have by then.
{
	my $witness = '/leaders/witness';
	sub witness_leads { my ($what) = @_; return $north->wait_until(q{SELECT zk_is_leader('/leaders/witness')}); }
	leads_unrequired();
	$zk->set($record, $elsewhere);
	$north->set('zklock.commit_requires', "$path,$witness");
	my $at = -s $north->logfile;
	$north->arm('history-answered');
	$north->set('zklock.leader_of', $path);
	my $process = $north->at_point('history-answered');
	resign($north, '1 hour');
	kill 'CONT', $process;
	$zk->wait_for_children("/zklock$path", 0);
	$north->safe_psql('postgres', "SELECT zk_leader_forget('$path')");
	my $witness_record = $record =~ s/primary/witness/r;
	$zk->exists($witness_record) ? $zk->set($witness_record, $elsewhere) : $zk->create($witness_record, data => $elsewhere);
	$north->set('zklock.leader_of', "$path,$witness");
	$north->wait_for_log(qr/this server must not lead "$witness"/, $at);
	$north->safe_psql('postgres', "SELECT zk_leader_forget('$witness')");
	witness_leads();
	foreach (1 .. 2)
	{
		$north->safe_psql('postgres', "SELECT zk_leader_resign('$witness')");
		witness_leads();
	}
	is(leads($north), 'f', 'a pause of an hour is not shortened by a look at the history');
	is(scalar @{ $zk->children("/zklock$path") }, 0, 'and it does not even stand');
	resign($north);
	wait_until_leads($north);
	pass('the user can end it');
	$north->set('zklock.leader_of', $path);
	$north->set('zklock.commit_requires', $path);
}

is($stands->query('SELECT 1'), '1', 'the standby is there');
$stands->quit;

is(rows('too early') + rows('overtakes') + rows('unknown'), 0, 'nothing has committed that was refused');
$_->stop foreach $south, $north;
done_testing();
