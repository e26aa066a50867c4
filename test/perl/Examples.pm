
=head1 NAME

Examples - the blocks of a page of the documentation, and how those of SQL are run

=head1 SYNOPSIS

	foreach my $section (Examples::sections_of("$top/README.md", 'README.md'))
	{
		foreach my $block (@{ $section->{blocks} })
		{
			Examples::run_statement($_, $session, $first, $other_node, 'where') foreach @{ $block->{statements} };
		}
	}

Comments in SQL that begin like these are checked, and belong to the statement on their line:

	-- t, -- f, -- 3			what it returns
	-- f, with a WARNING		and what it says
	-- fails with ZK003			how it fails; nothing else may fail
	-- waits; t when the first commits
								waits in the other session until the first one commits

=cut

package Examples;

use strict;
use warnings;

use Test::More;

use PostgreSQL::Test::Utils;

=head1 FUNCTIONS

=over

=item Examples::sections_of($file, $page)

The sections of a page: C<name>, and C<blocks>.  A block is its C<language>, its number of
C<line>, and its C<text>.  One of sql also has its C<statements>, and C<where> they run: C<here>, or
as its first line says, such as

	-- on another server
	-- client 1 of PgBouncer in transaction mode

A statement is its C<text>, its C<comment> and its number of C<line>.

=cut

sub sections_of
{
	my ($file, $page) = @_;
	my @sections = ({ name => 'beginning', blocks => [] });
	my ($fence, $indent, $block, $text);
	my $number = 0;

	foreach my $line (split /\n/, slurp_file($file))
	{
		$number++;
		if ($block)
		{
			$line =~ s/^$indent//;
			if ($line =~ /^```\s*$/)
			{
				die "$page:$number: a statement without an end: $text" if length $text;
				undef $block;
				next;
			}
			$block->{text} .= "$line\n";
			next unless $block->{language} eq 'sql';

			my ($code, $comment) = $line =~ /^(.*?)\s*(?:--\s*(.*?)\s*)?$/;
			$block->{where} = $1
			  if !@{ $block->{statements} } && $line =~ /^-- (on another server|client \d of PgBouncer in \w+ mode)$/;
			$text .= "$code\n" if length $code;
			next unless $code =~ /;$/;
			push @{ $block->{statements} }, { text => $text, comment => $comment // '', line => $number };
			$text = '';
		}
		elsif ($line =~ /^( *)```(\w*)/)
		{
			($indent, $text) = ($1, '');
			$block = { language => $2, line => $number, text => '', statements => [], where => 'here' };
			push @{ $sections[-1]{blocks} }, $block;
		}
		elsif ($line =~ /^##+ (.*)/)
		{
			push @sections, { name => $1, blocks => [] };
		}
	}
	return @sections;
}

=item Examples::run_statement($statement, $session, $first, $node, $where)

Execute a statement in a session, and check what its comment says.  If it waits on C<$node>, the
session C<$first> commits meanwhile.

=back

=cut

sub run_statement
{
	my ($statement, $session, $first, $node, $where) = @_;
	my ($text, $comment) = @$statement{ 'text', 'comment' };
	my $result;

	if ($comment =~ /^waits; (t|f) when the first commits$/)
	{
		$comment = $1;
		$session->send($text);
		$node->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE claim = 'waiting' AND ticket = 'queued'});
		ok(!$session->is_done, "$where: waits");
		$first->query('COMMIT');
		$result = $session->result;
	}
	else
	{
		$result = $session->run($text);
	}

	my ($errcode) = $comment =~ /^fails with (\w{5})$/;
	is($result->{errcode}, $errcode // '', $where) or diag("$text\n$result->{err}");
	is($result->{out}, $1, "$where: result") if $comment =~ /^(t|f|\d{1,3})(?:[,:;] |$)/;
	return if defined $errcode;
	is($result->{err} =~ /WARNING/ ? 1 : 0, $comment =~ /with a WARNING/ ? 1 : 0, "$where: WARNING")
	  or diag($result->{err});
	return;
}

1;
